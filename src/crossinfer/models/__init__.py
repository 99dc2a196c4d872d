"""Architectures: each is one file that builds the graph of a step. `ARCHITECTURES` is the registry."""
