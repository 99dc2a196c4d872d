"""Model steps as graphs of ops. Each op has its shape rule, float64 meaning and tolerance here."""
