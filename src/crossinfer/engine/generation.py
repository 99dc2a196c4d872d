"""What a generation is from outside: its result and its figures."""

from __future__ import annotations

import enum

from crossinfer.core.records import record


class FinishReason(enum.StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    """The model ended its turn, or a stop string appeared."""
    LENGTH = "length"
    """max_tokens were generated, or the context is full."""
    CANCELLED = "cancelled"
    """The caller wanted no more."""


@record
class Stats:
    """Figures of one generation. Times are in seconds; rates are 0 where nothing was measured."""

    prompt_tokens: int
    generated_tokens: int
    first_token_s: float
    """From the request to its first token; 0 if there was none."""
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    """Tokens after the first, over the time after the first."""
    weight_bytes: int
    kv_bytes: int
    activation_bytes: int


@record
class Generation:
    """The whole result of a generation."""

    text: str
    tokens: tuple[int, ...]
    """The generated ids, the end-of-turn token not included."""
    finish_reason: FinishReason
    stats: Stats
