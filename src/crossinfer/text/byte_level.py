"""The GPT-2 table that writes each of the 256 bytes as one printable character.

Byte-level BPE vocabularies store their tokens in these characters, so that any bytes can stand in a
JSON file: printable Latin-1 stands for itself, the other bytes for the characters from U+0100 on.
Source: `bytes_to_unicode` in OpenAI's GPT-2 `encoder.py`.
"""

from __future__ import annotations


def _table() -> dict[int, str]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable}
    table.update({byte: chr(0x100 + index) for index, byte in enumerate(others)})
    return table


BYTE_TO_CHAR = _table()
CHAR_TO_BYTE = {char: byte for byte, char in BYTE_TO_CHAR.items()}


def to_bytes(token: str) -> bytes:
    """The bytes that a byte-level token stands for.

    A token with a character outside the table was added as plain text and stands for its UTF-8.
    """
    try:
        return bytes([CHAR_TO_BYTE[char] for char in token])
    except KeyError:
        return token.encode("utf-8", "replace")
