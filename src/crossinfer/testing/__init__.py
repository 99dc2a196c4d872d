"""Random-weight models for tests and benchmarks."""
