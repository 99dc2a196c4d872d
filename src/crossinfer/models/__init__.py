"""Architectures: each is one file that builds the graph of a step; `registry` names them."""
