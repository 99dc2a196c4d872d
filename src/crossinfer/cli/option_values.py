"""Option values that are more than a text: what parses them, as argparse calls it.

Each raises argparse.ArgumentTypeError, whose text is shown behind the option's name.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


def whole_number(least: int) -> Callable[[str], int]:
    """The parser of integers from `least` on."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too small; it must be at least {least}")
        return value

    return parse


def number(least: float = -math.inf, most: float = math.inf) -> Callable[[str], float]:
    """The parser of numbers from `least` to `most`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if value < least or value > most:
            bounds = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
            raise argparse.ArgumentTypeError(f"{text} is out of range; it must be {bounds}")
        return value

    return parse


def unescape(text: str) -> str:
    r"""`text` with \n, \r, \t and \\ replaced by what they stand for; other backslashes stay."""
    return re.sub(r"\\([nrt\\])", lambda match: _ESCAPES[match[1]], text)


def parse_bias(text: str) -> tuple[int, float]:
    """The token and the bias of an item like `42=-1.5`."""
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form TOKEN=BIAS, a token id and a number, such as "
            "42=-1.5 or 42=-inf"
        ) from None


def parse_devices(text: str) -> list[str]:
    """The names in a list separated by commas."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(
            f"{text!r} holds an empty name; separate device names by single commas"
        )
    return names


def parse_gpu_layers(text: str) -> int | None:
    """A number of layers; None is `auto`."""
    if text == "auto":
        return None
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of layers; give one, or auto")
    return int(text)


def new_file(text: str) -> Path:
    """The path of a file that is to be written; refused before the work whose result it takes."""
    path = Path(text)
    if path.is_dir() or (path.exists() and not os.access(path, os.W_OK)):
        raise argparse.ArgumentTypeError(f"{text} is a folder, or a file that cannot be written")
    return path
