"""Llama 2 and 3, SmolLM2 and others of their form.

Pre-norm decoder with grouped-query attention, rotary positions and a SwiGLU feed-forward block
(Touvron et al. 2023; Grattafiori et al. 2024).
"""

from __future__ import annotations

from collections.abc import Mapping

from crossinfer.graph.graph import Graph
from crossinfer.hal.kernel import Operand
from crossinfer.models.config import ModelConfig
from crossinfer.models.decoder import DecoderBuilder, StepShape


def build(config: ModelConfig, weights: Mapping[str, Operand], shape: StepShape) -> Graph:
    """The graph of one step."""
    d = DecoderBuilder(config, weights, shape)
    x = d.embed("model.embed_tokens")
    for layer in range(config.layers):
        with d.layer(layer):
            h = d.norm(x, "input_layernorm", config.hidden)
            q = d.linear(h, "self_attn.q_proj", config.heads * config.head_dim)
            k = d.linear(h, "self_attn.k_proj", config.kv_heads * config.head_dim)
            v = d.linear(h, "self_attn.v_proj", config.kv_heads * config.head_dim)
            h = d.attention(q, k, v)
            x = d.linear(h, "self_attn.o_proj", config.hidden, residual=x)
            h = d.norm(x, "post_attention_layernorm", config.hidden)
            gate = d.linear(h, "mlp.gate_proj", config.feed_forward)
            up = d.linear(h, "mlp.up_proj", config.feed_forward)
            h = d.swiglu(gate, up)
            x = d.linear(h, "mlp.down_proj", config.hidden, residual=x)
    return d.finish(x)
