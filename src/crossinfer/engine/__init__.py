"""Requests in, tokens out: scheduling, the step, the paged KV cache, sampling, generation."""
