"""Stop strings: ends a stream of text where one of them begins."""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.core.errors import RequestError


class StopFilter:
    """Passes text through until a stop string appears in it.

    The pieces that come out join to the whole text cut where the first stop string begins. Text
    that may be the beginning of a stop string is held back, so a push looks at no more than the
    longest stop string and the new text.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises RequestError for a stop string that is empty or not a string."""
        if isinstance(stops, str):
            raise RequestError(f"Stop strings must be a list of strings, not the string {stops!r}.")
        for stop in stops:
            if not isinstance(stop, str) or not stop:
                raise RequestError(f"A stop string is {stop!r}; it must be text of 1 or more.")
        self._stops = tuple(dict.fromkeys(stops))
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that can no longer be part of a stop string. "" once `stopped`."""
        if self.stopped:
            return ""
        self._held += text
        match, partial = self._match(), self._partial()
        # A longer stop string that starts earlier may still complete and would then win.
        if match is not None and match <= partial:
            return self._stop(match)
        emitted, self._held = self._held[:partial], self._held[partial:]
        return emitted

    def finish(self) -> str:
        """The text held back, when generation ends; cut if a stop string is in it."""
        match = self._match()
        if match is not None:
            return self._stop(match)
        rest, self._held = self._held, ""
        return rest

    def _stop(self, at: int) -> str:
        self.stopped = True
        emitted, self._held = self._held[:at], ""
        return emitted

    def _match(self) -> int | None:
        """Where the first complete stop string begins in the held text."""
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        return min(found, default=None)

    def _partial(self) -> int:
        """Where an unfinished stop string may begin in the held text; its end if nowhere."""
        end = len(self._held)
        for start in range(max(0, end - self._longest + 1), end):
            if any(
                len(stop) > end - start and stop.startswith(self._held[start:])
                for stop in self._stops
            ):
                return start
        return end
