"""Writes docs/robustness.md: every kind of bad input that the tests make, and what the user sees.

python -m tests.robustness_table
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from crossinfer.core.errors import CrossinferError

PAGE = Path(__file__).parents[1] / "docs" / "robustness.md"
_MODULES = ("tests.formats.bad_files", "tests.text.bad_vocabularies", "tests.text.bad_templates")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of bad input. `trigger` is given an empty folder.

    It raises CrossinferError, warns, or returns what is noted.
    """

    area: str
    kind: str
    trigger: Callable[[Path], object]

    def shown(self, folder: Path) -> str:
        """What the user sees, with paths from `folder` on."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                returned = self.trigger(folder)
            except CrossinferError as error:
                text = f"Error: {error}"
            else:
                told = [f"Warning: {warning.message}" for warning in caught]
                noted = [f"Note: {returned}"] if isinstance(returned, str) else []
                text = " ".join((*told, *noted))
        return text.replace(f"{folder}/", "").replace(str(folder), ".")


def kinds() -> Iterator[Kind]:
    """All kinds, area by area."""
    for module in _MODULES:
        if importlib.util.find_spec(module) is not None:
            yield from importlib.import_module(module).KINDS


def page() -> str:
    """The whole page."""
    lines = [
        "# What happens with bad input",
        "",
        "Made by `python -m tests.robustness_table` from the tests: each line is a file or a text "
        "that a test makes, and what is then said. Nothing else happens: no crash, no hang, no "
        "traceback, and no more memory than the file's size explains.",
    ]
    for area, group in itertools.groupby(kinds(), lambda kind: kind.area):
        lines += ["", f"## {area}", "", "| what is wrong | what the user sees |", "|---|---|"]
        for kind in group:
            with tempfile.TemporaryDirectory() as folder:
                seen = kind.shown(Path(folder))
            lines.append(f"| {_cell(kind.kind)} | {_cell(seen)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
