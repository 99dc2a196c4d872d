"""The text of a shader with its includes put in, so that DXC needs no files."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from crossinfer.core.sources import sources_digest

FOLDER = Path(__file__).parent / "hlsl"
_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


@functools.cache
def shader_source(name: str) -> str:
    """A file of `hlsl/`; `#line` keeps the names and lines that errors give."""
    text = (FOLDER / name).read_text(encoding="utf-8")

    def put_in(match: re.Match[str]) -> str:
        line = text.count("\n", 0, match.end()) + 2
        return f'{shader_source(match[1])}\n#line {line} "{name}"'

    return f'#line 1 "{name}"\n{_INCLUDE.sub(put_in, text)}'


def kernel_code() -> str:
    """A digest of the shaders and of the lowerings that choose among them."""
    return sources_digest("kernels", "formats", "graph")
