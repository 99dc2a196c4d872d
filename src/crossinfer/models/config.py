"""What a decoder's graph depends on besides its weights."""

from __future__ import annotations

from crossinfer.core.errors import FormatError
from crossinfer.core.records import record

_MAX_CONTEXT = 1 << 30
"""Positions are 32-bit integers."""


@record
class RopeScaling:
    """How rotary frequencies are stretched beyond the trained context (see `models.rope`)."""

    kind: str
    """linear, yarn, or llama3."""
    factor: float
    original_context: int
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    """yarn: the factor on cosine and sine; None: 0.1·ln(factor) + 1."""

    def validate(self, where: str) -> None:
        """Raises FormatError, naming the file `where`, if the numbers make no sense."""
        sensible = (
            self.original_context >= 1
            and self.high_freq_factor > self.low_freq_factor > 0
            and self.beta_fast > self.beta_slow > 0
            and (self.attention_factor is None or self.attention_factor > 0)
        )
        if not sensible:
            raise FormatError(f"{where}: the numbers of the rotary scaling make no sense: {self}.")


@record
class ModelConfig:
    """The sizes and constants of a decoder-only transformer."""

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    context: int
    """Tokens that the model was made for."""
    norm_eps: float
    rope_base: float
    rope_scaling: RopeScaling | None = None
    rope_interleaved: bool = False
    """Query and key rows are ordered so that rotary pairs are neighbours (GGUF files of llama)."""
    tied_embeddings: bool = False
    """The output matrix is the embedding table."""

    def validate(self, where: str) -> ModelConfig:
        """Itself. Raises FormatError, naming the file `where`, if the sizes make no sense."""
        for field in ("hidden", "layers", "heads", "kv_heads", "head_dim", "feed_forward",
                      "vocabulary", "context"):  # fmt: skip
            if getattr(self, field) < 1:
                raise FormatError(f"{where}: {field} is {getattr(self, field)}; it is at least 1.")
        if self.context > _MAX_CONTEXT:
            raise FormatError(
                f"{where}: the context is {self.context} tokens; at most {_MAX_CONTEXT} are "
                "supported, so the file is damaged."
            )
        if self.heads % self.kv_heads:
            raise FormatError(
                f"{where}: {self.heads} attention heads cannot share {self.kv_heads} KV heads."
            )
        if self.head_dim % 2:
            raise FormatError(f"{where}: the head dimension {self.head_dim} is odd.")
        for field, least in (("norm_eps", 0), ("rope_base", 1)):
            value = getattr(self, field)
            if not least < value < float("inf"):
                raise FormatError(f"{where}: {field} is {value}; it is a number above {least}.")
        if self.rope_scaling is not None:
            self.rope_scaling.validate(where)
        return self
