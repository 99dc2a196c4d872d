"""The checksum of a DXIL container, without which Direct3D 12 refuses a shader.

It is MD5's compression function over the bytes after the first 20, with a padding of its own: the
length in bits opens the last block instead of closing it, and a second form of it closes it.
"""

from __future__ import annotations

import math
import struct

_HEADER = 20
"""Four bytes of magic, sixteen of checksum."""
_BLOCK = 64
_MASK = 0xFFFFFFFF
_SINES = tuple(int(abs(math.sin(i + 1)) * 2**32) & _MASK for i in range(64))
_ROTATIONS = (7, 12, 17, 22) * 4 + (5, 9, 14, 20) * 4 + (4, 11, 16, 23) * 4 + (6, 10, 15, 21) * 4
_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)

_State = tuple[int, int, int, int]


def sign(container: bytes) -> bytes:
    """The container with its checksum filled in."""
    return container[:4] + checksum(container) + container[_HEADER:]


def checksum(container: bytes) -> bytes:
    """The sixteen bytes that belong at offset 4."""
    data = container[_HEADER:]
    whole = len(data) // _BLOCK * _BLOCK
    rest = data[whole:]
    first = struct.pack("<I", len(data) * 8 & _MASK)
    last = struct.pack("<I", (len(data) * 2 & _MASK) | 1)
    if len(rest) >= _BLOCK - 8:
        tail = rest + b"\x80" + bytes(_BLOCK - 1 - len(rest)) + first + bytes(_BLOCK - 8) + last
    else:
        tail = first + rest + b"\x80" + bytes(_BLOCK - 9 - len(rest)) + last
    state: _State = _START
    for start in range(0, whole, _BLOCK):
        state = _compress(state, data[start : start + _BLOCK])
    for start in range(0, len(tail), _BLOCK):
        state = _compress(state, tail[start : start + _BLOCK])
    return struct.pack("<4I", *state)


def _compress(state: _State, block: bytes) -> _State:
    words = struct.unpack("<16I", block)
    a, b, c, d = state
    for i in range(64):
        if i < 16:
            f, index = (b & c) | (~b & d), i
        elif i < 32:
            f, index = (d & b) | (~d & c), (5 * i + 1) % 16
        elif i < 48:
            f, index = b ^ c ^ d, (3 * i + 5) % 16
        else:
            f, index = c ^ (b | (~d & _MASK)), 7 * i % 16
        f = (f + a + _SINES[i] + words[index]) & _MASK
        turned = (f << _ROTATIONS[i] | f >> (32 - _ROTATIONS[i])) & _MASK
        a, d, c, b = d, c, b, (b + turned) & _MASK
    return (
        (state[0] + a) & _MASK,
        (state[1] + b) & _MASK,
        (state[2] + c) & _MASK,
        (state[3] + d) & _MASK,
    )
