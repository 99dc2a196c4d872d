"""Builds a wheel that carries the compiled shaders: `python scripts/build_wheel.py FOLDER`.

The shaders come from the cache; what it lacks is compiled. The wheel is made from a copy of the
sources, so that nothing is left in the checkout. Arguments after FOLDER go to `pip wheel`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from crossinfer.core.errors import CrossinferError
from crossinfer.kernels.build import build

ROOT = Path(__file__).resolve().parent.parent
_NEEDED = ("pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY.md")


def build_wheel(folder: Path, *pip_options: str) -> Path:
    """The wheel, in `folder`. Raises KernelUnsupported, subprocess.CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="crossinfer-wheel-") as made:
        copy, wheels = Path(made, "source"), Path(made, "wheels")
        leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "compiled")
        shutil.copytree(ROOT / "src", copy / "src", ignore=leave_out)
        for name in _NEEDED:
            shutil.copy(ROOT / name, copy / name)
        build(copy / "src" / "crossinfer" / "kernels" / "compiled")
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        subprocess.run([*command, *pip_options, "--wheel-dir", wheels, copy], check=True)
        (wheel,) = wheels.iterdir()
        return Path(shutil.copy(wheel, folder))


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(build_wheel(Path(arguments[0]), *arguments[1:]))
    except CrossinferError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
