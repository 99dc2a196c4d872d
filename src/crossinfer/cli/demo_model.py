"""`crossinfer demo-model`: a small model to begin with."""

from __future__ import annotations

from crossinfer.cli.progress_bars import ProgressBars


def demo_model() -> None:
    """Get the demo model, SmolLM2-135M-Instruct (93 MB), and print its path.

    It is downloaded once, into the cache folder; commands use it where no
    model is named.
    """
    from crossinfer.engine.demo_model import fetch_demo_model

    with ProgressBars() as bars:
        path = fetch_demo_model(bars)
    print(path)
