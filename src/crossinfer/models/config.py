"""What a decoder's graph depends on besides its weights."""

from __future__ import annotations

import dataclasses

from crossinfer.core.errors import FormatError


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
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
        if self.heads % self.kv_heads:
            raise FormatError(
                f"{where}: {self.heads} attention heads cannot share {self.kv_heads} KV heads."
            )
        if self.head_dim % 2:
            raise FormatError(f"{where}: the head dimension {self.head_dim} is odd.")
        for field in ("norm_eps", "rope_base"):
            value = getattr(self, field)
            if not 0 < value < float("inf"):
                raise FormatError(f"{where}: {field} is {value}; it is a positive number.")
        return self
