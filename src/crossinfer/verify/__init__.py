"""Runs kernel cases on a device against their float64 meaning, and stores the verdicts."""
