"""Tensors that generating text does not use, and that checkpoints carry all the same."""

from __future__ import annotations

import re
from collections.abc import Iterable

from crossinfer.core.shapes import count

_KNOWN = re.compile(
    r"""
    .*rotary_emb\.inv_freq | .*attn_rot_embd\.weight      # follow from the configuration
    | .*attn\.masked_bias | .*self_attn\.bias             # the causal mask, in old checkpoints
    | (score|classifier|reward_head|qa_outputs)\..*       # heads of other tasks
    | (cls|cls\.output|cls\.norm)\.(weight|bias)          # the same in GGUF files
    | (v_head|value_head)\..*                             # of reinforcement learning
    | (mtp|model\.mtp|medusa_heads?|medusa_head)\..*      # heads that guess further tokens
    | blk\.\d+\.nextn\..* | .*\.(eh_proj|enorm|hnorm|shared_head\..*)(\.weight)?
    """,
    re.VERBOSE,
)
_SHOWN = 3


def is_extra_head(name: str) -> bool:
    """Whether a tensor that the graph does not use is known to be of no use to it."""
    return _KNOWN.fullmatch(name) is not None


def ignored_note(names: Iterable[str]) -> str:
    """What to tell about tensors that are left out."""
    ordered = sorted(names)
    listed = ", ".join(ordered[:_SHOWN]) + (", …" if len(ordered) > _SHOWN else "")
    return (
        f"Ignored, since generating text does not use them: {count(ordered, 'tensor')}, {listed}."
    )
