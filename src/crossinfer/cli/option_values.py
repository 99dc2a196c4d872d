"""Option values that are more than a number or a text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import typer

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


def unescape(text: str) -> str:
    r"""`text` with \n, \r, \t and \\ replaced by what they stand for; other backslashes stay."""
    return re.sub(r"\\([nrt\\])", lambda match: _ESCAPES[match[1]], text)


def parse_logit_bias(items: Sequence[str]) -> dict[int, float]:
    """Biases by token of items like `42=-1.5`. Raises typer.BadParameter."""
    biases: dict[int, float] = {}
    for item in items:
        token, _, bias = item.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise typer.BadParameter(
                f"{item!r} is not of the form TOKEN=BIAS, a token id and a number, such as "
                "42=-1.5 or 42=-inf.",
                param_hint="--logit-bias",
            ) from None
    return biases


def parse_devices(text: str) -> list[str]:
    """The names in a list separated by commas. Raises typer.BadParameter."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise typer.BadParameter(
            f"{text!r} holds an empty name; separate device names by single commas.",
            param_hint="--device",
        )
    return names


def parse_gpu_layers(text: str) -> int | None:
    """A number of layers; None is `auto`. Raises typer.BadParameter."""
    if text == "auto":
        return None
    if not text.isascii() or not text.isdecimal():
        raise typer.BadParameter(
            f"{text!r} is not a number of layers; give one, or auto.", param_hint="--gpu-layers"
        )
    return int(text)
