"""Which files of a repository on the Hub make a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from crossinfer.core.errors import FormatError, shown

# What is taken where none is asked for: the best that is about as small as four bits.
_PREFERRED = ("q4_k_m", "q4_k_s", "q4_0", "q4_1", "iq4_xs", "iq4_nl", "q5_k_m", "q8_0", "f16")
_PART = re.compile(r"-(\d{5})-of-\d{5}\.gguf$", re.IGNORECASE)
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
_FOLDER_FILES = frozenset(
    ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
     "chat_template.jinja")
)  # fmt: skip


def choose_files(repository: str, names: Iterable[str], quant: str | None) -> Sequence[str]:
    """The files to take: one GGUF model, its first part first, or those of a model folder.

    Raises FormatError, listing what there is, if `quant` or the repository leaves no single choice.
    """
    safe = [name for name in names if _is_plain(name)]
    models = _gguf_models(safe)
    if models:
        return models[_choose_model(repository, list(models), quant)]
    folder = [name for name in safe if name in _FOLDER_FILES or _WEIGHTS.fullmatch(name)]
    if quant is not None:
        raise FormatError(
            f"{repository} on the Hub has no GGUF files, so there is no {shown(quant)} to choose."
        )
    if "config.json" not in folder or not any(_WEIGHTS.fullmatch(name) for name in folder):
        raise FormatError(
            f"{repository} on the Hub has neither GGUF files nor a config.json with safetensors, "
            "so crossinfer has nothing to run."
        )
    return folder


def _is_plain(name: str) -> bool:
    """Whether a name stays within its folder."""
    return not name.startswith("/") and "\\" not in name and ".." not in name.split("/")


def _gguf_models(names: Sequence[str]) -> dict[str, list[str]]:
    """The files of each GGUF model by its first; projectors of images are no models."""
    models: dict[str, list[str]] = {}
    for name in sorted(names):
        if not name.lower().endswith(".gguf") or "mmproj" in name.lower():
            continue
        models.setdefault(_PART.sub("-00001-of-parts", name), []).append(name)
    return {files[0]: files for files in models.values()}


def _choose_model(repository: str, models: Sequence[str], quant: str | None) -> str:
    wanted = (quant.lower(),) if quant is not None else _PREFERRED
    for label in wanted:
        found = [name for name in models if _has_label(name, label)]
        if len(found) == 1:
            return found[0]
        if found and quant is not None:
            raise FormatError(
                f"{shown(quant)} names several files of {repository}: {_listed(found)}; download "
                "one and name its path."
            )
    if quant is None and len(models) == 1:
        return models[0]
    raise FormatError(
        f"{repository} on the Hub has no {shown(quant)}; there are {_listed(models)}."
        if quant is not None
        else f"{repository} on the Hub has several models; name one as {repository}:QUANT. There "
        f"are {_listed(models)}."
    )


def _has_label(name: str, label: str) -> bool:
    """Whether `label` is a word of the file's name: q4_0, but not in q4_0_8_8."""
    return re.search(rf"(?<![a-z0-9_]){re.escape(label)}(?![a-z0-9_])", name.lower()) is not None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
