"""An answer as a C host reads it: several threads may, and each wait can have an end."""

from __future__ import annotations

import threading
import time

from crossinfer.engine.generation import Generation
from crossinfer.engine.stream import Stream


class Answer:
    """A stream behind a lock. Thread-safe."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._reader = threading.Lock()

    def next_piece(self, timeout_s: float | None) -> str | None:
        """The next piece, "" if there is none yet after `timeout_s`, None after the last.

        Raises what ended the answer.
        """
        started = time.monotonic()
        if not self._reader.acquire(timeout=-1 if timeout_s is None else timeout_s):
            return ""
        try:
            if timeout_s is not None:
                timeout_s = max(0.0, timeout_s - (time.monotonic() - started))
            return self._stream.next_piece(timeout_s)
        finally:
            self._reader.release()

    @property
    def generation(self) -> Generation | None:
        """The whole answer; None before it has ended and its pieces were read.

        Raises what ended it, if it failed.
        """
        return self._stream.generation

    def cancel(self) -> None:
        self._stream.close()
