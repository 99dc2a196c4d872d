"""The process that `benchmarks.startup` measures: `crossinfer run`, with clocks in its functions.

    python benchmarks/startup_process.py STARTED FILE ARGUMENTS...

STARTED is when it was started, by time.monotonic. At its end it writes to FILE, as JSON, the
seconds of each stage, less those of the stages within it. Loads little that the command does not.
"""

import builtins
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

READY = time.monotonic()
WAITING = "wait for the engine's thread"
# Module, attribute, stage: patched as soon as the module is there.
CLOCKS = [
    ("crossinfer.cli.app", "_parsers", "command line"),
    ("crossinfer.engine.llm", "open_model_file", "map the file, read its metadata"),
    ("crossinfer.engine.llm", "load_model", "check the weights' names and shapes"),
    ("crossinfer.text.model_text", "load_tokenizer", "tokenizer"),
    ("crossinfer.engine.llm", "LLM.chat_tokens", "chat template, prompt to tokens"),
    ("crossinfer.engine.setup", "open_devices", "open the device"),
    ("crossinfer.engine.step", "StepRunner._settled_plan", "plan"),
    ("crossinfer.engine.step", "StepRunner.finish_loading", "wait for the weights"),
    ("crossinfer.engine.llm", "LLM.finish_loading", WAITING),
    ("crossinfer.engine.recorded_plan", "RecordedPlan._record", "record"),
    ("crossinfer.engine.recorded_plan", "RecordedPlan._run_segments", "compute"),
    ("crossinfer.engine.stream", "Stream.next_piece", WAITING),
]
seconds: dict[str, float] = {}
local = threading.local()


def timed(function: Callable[..., Any], stage: str) -> Callable[..., Any]:
    """`function`, with its time, less that of timed functions within it, added to a stage."""

    def with_clock(*args: Any, **keywords: Any) -> Any:
        inner = getattr(local, "inner", 0.0)
        local.inner = 0.0
        started = time.monotonic()
        try:
            return function(*args, **keywords)
        finally:
            took = time.monotonic() - started
            seconds[stage] = seconds.get(stage, 0.0) + took - local.inner
            local.inner = inner + took

    return with_clock


def patch() -> None:
    """Put clocks into the modules that are complete."""
    for clock in list(CLOCKS):
        name, attribute, stage = clock
        module = sys.modules.get(name)
        if module is None or getattr(module.__spec__, "_initializing", False):
            continue
        CLOCKS.remove(clock)
        *owners, last = attribute.split(".")
        owner: Any = module
        for part in owners:
            owner = getattr(owner, part)
        setattr(owner, last, timed(getattr(owner, last), stage))


plain_import = builtins.__import__
timed_import = timed(plain_import, "imports")


def import_with_clock(name: str, *args: Any, **keywords: Any) -> Any:
    """Only imports that are not within another one are timed."""
    if getattr(local, "imports", False):
        return plain_import(name, *args, **keywords)
    local.imports = True
    try:
        return timed_import(name, *args, **keywords)
    finally:
        local.imports = False
        patch()


def main() -> None:
    """Run the command up to the end of its answer."""
    started, file = float(sys.argv[1]), sys.argv[2]
    sys.argv[:] = ["crossinfer", *sys.argv[3:]]
    seconds["interpreter"] = READY - started
    builtins.__import__ = import_with_clock
    import atexit

    from crossinfer.cli.app import main as command

    def write() -> None:
        import json

        seconds.pop(WAITING, None)
        with open(file, "w") as target:
            json.dump(seconds, target)

    atexit.register(write)
    command()


main()
