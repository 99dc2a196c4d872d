"""Qwen3: the form of Llama with an explicit head dimension and per-head normalisation.

Queries and keys are normalised head by head before the rotary embedding (Yang et al. 2025).
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
            q = d.norm(q, "self_attn.q_norm", config.head_dim)
            k = d.norm(k, "self_attn.k_norm", config.head_dim)
            h = d.attention(q, k, v)
            x = d.linear(h, "self_attn.o_proj", config.hidden, residual=x)
            h = d.norm(x, "post_attention_layernorm", config.hidden)
            gate = d.linear(h, "mlp.gate_proj", config.feed_forward)
            up = d.linear(h, "mlp.up_proj", config.feed_forward)
            h = d.swiglu(gate, up)
            x = d.linear(h, "mlp.down_proj", config.hidden, residual=x)
    return d.finish(x)
