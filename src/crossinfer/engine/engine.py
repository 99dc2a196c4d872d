"""The engine: one thread that owns every queue, and the requests that callers give it."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from crossinfer.core.errors import CrossinferError, RequestError
from crossinfer.engine.recovery import RecoverableRunner
from crossinfer.engine.scheduler import ScheduledStep, Scheduler
from crossinfer.engine.sequence import EngineSequence
from crossinfer.hal.timer import TimedKernel

if TYPE_CHECKING:
    from crossinfer.engine.slice_cut import Bounds
    from crossinfer.engine.slices import SliceGate, SliceResult


class _Timeline:
    """Kernel times of several steps, put one after another on the host's clock."""

    def __init__(self) -> None:
        self.kernels: list[TimedKernel] = []
        self._origin = time.perf_counter()

    def add(self, step_started: float, kernels: Sequence[TimedKernel]) -> None:
        offset = step_started - self._origin
        self.kernels += [dataclasses.replace(k, start_s=k.start_s + offset) for k in kernels]


class Engine:
    """Runs steps as long as there are sequences; sleeps otherwise. Thread-safe."""

    def __init__(
        self,
        runner: RecoverableRunner,
        scheduler: Scheduler,
        *,
        release: Callable[[], None],
        trace_steps: bool,
        gate: SliceGate | None = None,
    ) -> None:
        """`release` gives back what the steps run on; the thread calls it after its last step.

        Whoever closes the engine cannot: an interrupt may end its wait for that step.
        """
        self._runner = runner
        self._release = release
        self._scheduler = scheduler
        self._trace_steps = trace_steps
        self._gate = gate
        self._wake = threading.Condition()
        self._closing = False
        self._broken: CrossinferError | None = None
        self._timeline: _Timeline | None = None
        self._undelivered: list[EngineSequence] = []
        """What steps gave these is told while the devices run the next step."""
        self._thread = threading.Thread(target=self._work, name="crossinfer-engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread still runs, so that waiting for an outcome makes sense."""
        return self._thread.is_alive()

    def submit(self, sequence: EngineSequence) -> None:
        """Take a sequence on; its outcomes come in its queue.

        Raises DeviceError if a device was lost for good, RequestError if the engine is closed or of
        another process.
        """
        if not self.alive and not self._closing:
            raise RequestError(
                "The engine's thread does not run in this process, which was perhaps forked from "
                "the one that made the LLM; make a new LLM here."
            )
        with self._wake:
            if self._broken is not None:
                raise self._broken.with_traceback(None)  # or it would grow each time
            if self._closing:
                raise RequestError("The model is closed; make a new LLM to go on.")
            if not sequence.done:
                self._scheduler.add(sequence)
                self._wake.notify()

    def let_through(self, bounds: Bounds) -> SliceResult:
        """Let one piece of a step through; for an engine whose runner stops at a gate.

        Raises RequestError for another, and once the engine is closed.
        """
        if self._gate is None:
            raise RequestError("The model was not opened with sliced=True, so it runs by itself.")
        if self._closing or not self.alive:
            raise RequestError("The model is closed; make a new LLM to go on.")
        return self._gate.step(bounds, self._is_idle)

    def _is_idle(self) -> bool:
        with self._wake:
            return all(sequence.done for sequence in self._scheduler.all())

    def cancel(self, sequence: EngineSequence) -> None:
        """End a sequence early; it ends with what it has, after the step that runs."""
        sequence.cancelled = True
        self._notify()

    def resume(self) -> None:
        """The caller of a sequence that was ahead has taken some of what it gave."""
        self._notify()

    @contextlib.contextmanager
    def timeline(self) -> Iterator[list[TimedKernel]]:
        """Steps that start within the block add their kernels' times to the list.

        Raises RequestError for an engine whose runner stops at a gate: timed steps are not cut.
        """
        if self._gate is not None:
            raise RequestError("A model opened with sliced=True has no timeline of its kernels.")
        self._timeline = timeline = _Timeline()
        try:
            yield timeline.kernels
        finally:
            self._timeline = None

    def close(self) -> None:
        """Cancel what runs, and wait until the thread has ended and released everything.

        On the engine's own thread (where garbage may be collected) there is no waiting.
        """
        self._closing = True
        if self._gate is not None:
            self._gate.open()
        self._notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _notify(self) -> None:
        if self.alive:  # a forked process has no thread, and the lock as it was at that moment
            with self._wake:
                self._wake.notify()

    def _work(self) -> None:
        try:
            while (step := self._next_step()) is not None:
                self._run(step)
        finally:
            self._release()

    def _next_step(self) -> ScheduledStep | None:
        """The next step; waits for one. None when the engine closes."""
        with self._wake:
            while True:
                for sequence in self._scheduler.all():
                    if self._closing or sequence.cancelled:
                        sequence.cancel_now()
                step = self._scheduler.next()
                if step is not None or self._closing:
                    return step
                self._wake.wait()

    def _run(self, step: ScheduledStep) -> None:
        started = time.perf_counter()
        for sequence in step.sequences:
            sequence.begin_step()
        wanted = any(sequence.needs_logits for sequence in step.sequences)
        timeline = self._timeline
        try:
            result = self._runner.run(
                step.batch,
                want_logits=wanted,
                timed=timeline is not None,
                meanwhile=self._deliver,
            )
        except Exception as error:  # whatever it is, it must reach the callers, who wait
            self._deliver()
            if self._runner.can_recover(error) and not self._closing:
                self._recover(error)
            else:
                self._fail(step.sequences, _as_ours(error))
            return
        finally:
            self._tell_news()
        if timeline is not None:
            timeline.add(started, result.kernels)
        row = 0
        for sequence, chunk in zip(step.sequences, step.batch.chunks, strict=True):
            rows = slice(row, row + len(chunk.logits))
            row = rows.stop
            if sequence.done:  # by a stop string that was found while the step ran
                continue
            logits = None if result.logits is None else result.logits[rows]
            try:
                sequence.advance(len(chunk.tokens))
                sequence.accept(result.argmax[rows], logits)
            except Exception as error:  # whatever it is, it must reach the caller, who waits
                sequence.fail(_as_ours(error))
        self._undelivered += step.sequences
        if self._gate is not None:
            self._deliver()  # the host may take its time before it lets the next step through
        if self._trace_steps:
            milliseconds = (time.perf_counter() - started) * 1e3
            sizes = " + ".join(str(len(chunk.tokens)) for chunk in step.batch.chunks)
            print(f"step: {sizes} rows, {milliseconds:.1f} ms", file=sys.stderr)

    def _deliver(self) -> None:
        """Tell callers what the last step gave them."""
        undelivered, self._undelivered = self._undelivered, []
        for sequence in undelivered:
            try:
                sequence.deliver()
            except Exception as error:  # whatever it is, it must reach the caller, who waits
                sequence.fail(_as_ours(error))

    def _recover(self, error: Exception) -> None:
        """Every sequence goes on from the tokens that it has, or all end, now and later."""
        try:
            self._runner.recover(error)
        except Exception as error:  # whatever it is, it must reach the callers, who wait
            ours = _as_ours(error)
            with self._wake:
                self._broken = ours
                failed = self._scheduler.all()
            self._fail(failed, ours)
        else:
            with self._wake:
                self._scheduler.restart(self._runner.limits)

    def _tell_news(self) -> None:
        news = " ".join(self._runner.take_news())
        if news:
            with self._wake:
                told = self._scheduler.all()
            for sequence in told:
                sequence.tell(news)

    @staticmethod
    def _fail(sequences: Iterable[EngineSequence], error: CrossinferError) -> None:
        for sequence in sequences:
            sequence.fail(error)


def _as_ours(error: Exception) -> CrossinferError:
    if isinstance(error, CrossinferError):
        return error
    ours = CrossinferError(f"A step failed in an unexpected way: {type(error).__name__}: {error}.")
    ours.__cause__ = error
    return ours
