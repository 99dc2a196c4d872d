"""Sequences in the engine: what has been computed, what is wanted, and who is told."""

from __future__ import annotations

import abc
import queue
import time
from collections.abc import Callable, Sequence

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import CrossinferError, RequestError
from crossinfer.core.progress import Progress
from crossinfer.core.records import record
from crossinfer.engine.generation import FinishReason, Generation, Stats
from crossinfer.engine.sampling import Sampler, SamplingParams, non_finite_logits
from crossinfer.text.detokenizer import Detokenizer
from crossinfer.text.stops import StopFilter


@record
class Notice:
    """Something that the caller should know while its request goes on."""

    text: str


Outcome = str | Array | Notice | Generation | CrossinferError
"""What a caller finds in its queue: pieces of text or rows of logits, notices between them, then
the end or an error."""


class EngineSequence(abc.ABC):
    """Tokens with their KV cache. Once submitted, touched by the engine's thread only, but for
    `cancelled`, which anybody sets, and `outcomes`, which the caller reads.
    """

    def __init__(self, tokens: Sequence[int], progress: Progress) -> None:
        self.tokens = list(tokens)
        self.prompt_length = len(self.tokens)
        self.computed = 0
        """Tokens that are in the KV cache."""
        self.blocks: list[int] = []
        self.outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self.done = False
        self.cancelled = False
        self._progress = progress
        self._read = 0

    @property
    def missing(self) -> int:
        """Tokens that are still to be computed."""
        return len(self.tokens) - self.computed

    @property
    @abc.abstractmethod
    def needs_logits(self) -> bool:
        """Whether the argmax is not enough."""

    @property
    def is_ahead(self) -> bool:
        """Whether the caller has so much to take that steps do without this sequence until then."""
        return False

    def begin_step(self) -> None:  # noqa: B027 - most have nothing to do
        """A step that computes some of its rows begins."""

    @abc.abstractmethod
    def wanted_rows(self, count: int) -> list[int]:
        """Of the next `count` rows, those whose logits are wanted: the last ones, if any."""

    @abc.abstractmethod
    def accept(self, argmax: Array, logits: Array | None) -> None:
        """Take the wanted rows of a step that computed them. May end the sequence.

        The devices wait for it: what the next step does not need is left to `deliver`.
        """

    def deliver(self) -> None:  # noqa: B027 - most have nothing to do
        """Tell the caller what `accept` left untold. May end the sequence."""

    @abc.abstractmethod
    def cancel_now(self) -> None:
        """End early, on the engine's thread, with what there is so far."""

    def advance(self, rows: int) -> None:
        """`rows` more tokens are in the KV cache."""
        self.computed += rows
        if self._read < self.computed <= self.prompt_length:  # nothing is told twice
            self._read = self.computed
            self._progress("Reading the prompt", self.computed, self.prompt_length)

    def restart(self) -> None:
        """The KV cache was given up; everything is to be computed again."""
        self.computed = 0

    def tell(self, text: str) -> None:
        """Let the caller know of something; the request goes on."""
        if not self.done:
            self.outcomes.put(Notice(text))

    def fail(self, error: CrossinferError) -> None:
        """End with an error."""
        self._end(error)

    def _end(self, outcome: Outcome) -> None:
        if not self.done:
            self.done = True
            self.outcomes.put(outcome)


class GenerationSequence(EngineSequence):
    """A prompt that is being continued."""

    def __init__(
        self,
        prompt: Sequence[int],
        *,
        params: SamplingParams,
        seed: int,
        max_tokens: int,
        end_ids: frozenset[int],
        detokenizer: Detokenizer,
        stops: StopFilter,
        memory: Callable[[], dict[str, int]],
        progress: Progress,
    ) -> None:
        """`max_tokens` 0 ends at once; `memory` gives the figures of `StepRunner.memory`."""
        super().__init__(prompt, progress)
        self._params = params
        self._sampler = Sampler(params, seed)
        self._max_tokens = max_tokens
        self._end_ids = end_ids
        self._detokenizer = detokenizer
        self._stops = stops
        self._memory = memory
        self._pieces: list[str] = []
        self._untold: list[int] = []
        """Tokens whose text the caller does not have yet."""
        self._submitted = time.perf_counter()
        self._started: float | None = None
        self._first: float | None = None
        self._last = self._submitted
        if max_tokens == 0:
            self._finish(FinishReason.LENGTH)

    @property
    def needs_logits(self) -> bool:
        return not self._params.is_argmax

    def begin_step(self) -> None:
        if self._started is None:
            self._started = time.perf_counter()

    def wanted_rows(self, count: int) -> list[int]:
        return [count - 1] if count == self.missing else []

    def accept(self, argmax: Array, logits: Array | None) -> None:
        if len(argmax) == 0:
            return
        answer = self.tokens[self.prompt_length :]
        if self.needs_logits and logits is not None:
            prompt = self.tokens[: self.prompt_length]
            token = self._sampler.choose(logits[0], prompt, answer)
        elif argmax[0] < 0:
            raise non_finite_logits()
        else:
            token = int(argmax[0])
        now = time.perf_counter()
        if self._first is None:
            self._first = now
        if token in self._end_ids:
            self._finish(FinishReason.STOP)
            return
        self._last = now
        self.tokens.append(token)
        self._untold.append(token)
        if len(answer) + 1 >= self._max_tokens:
            self._finish(FinishReason.LENGTH)

    def deliver(self) -> None:
        self._tell_text()
        if self._stops.stopped:
            self._finish(FinishReason.STOP)

    def cancel_now(self) -> None:
        self._finish(FinishReason.CANCELLED)

    def _tell_text(self) -> None:
        untold, self._untold = self._untold, []
        for token in untold:
            self._emit(self._stops.push(self._detokenizer.push(token)))

    def _emit(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self.outcomes.put(piece)

    def _finish(self, reason: FinishReason) -> None:
        if self.done:
            return
        self._tell_text()
        self._emit(self._stops.push(self._detokenizer.finish()) + self._stops.finish())
        if self._stops.stopped:
            reason = FinishReason.STOP
        answer = tuple(self.tokens[self.prompt_length :])
        self._end(Generation("".join(self._pieces), answer, reason, self._stats(len(answer))))

    def _stats(self, generated: int) -> Stats:
        memory = self._memory()
        first_token = prefill = decode = 0.0
        if self._first is not None and self._started is not None:
            first_token = self._first - self._submitted
            prefill = self.prompt_length / max(self._first - self._started, 1e-9)
            if generated > 1:
                decode = (generated - 1) / max(self._last - self._first, 1e-9)
        return Stats(
            prompt_tokens=self.prompt_length,
            generated_tokens=generated,
            first_token_s=first_token,
            prefill_tokens_per_s=prefill,
            decode_tokens_per_s=decode,
            weight_bytes=memory["weights"],
            kv_bytes=memory["kv"],
            activation_bytes=memory["activations"],
        )


_MOST_SCORED = 4
"""Pieces of logits that wait to be taken: with a vocabulary of 150,000, one may be 40 MB."""


class ScoreSequence(EngineSequence):
    """A text whose logits are wanted at every token; they come in order, as float32 [rows, V]."""

    def __init__(self, tokens: Sequence[int], progress: Progress) -> None:
        super().__init__(tokens, progress)
        self._delivered = 0

    @property
    def needs_logits(self) -> bool:
        return True

    @property
    def is_ahead(self) -> bool:
        return self.outcomes.qsize() >= _MOST_SCORED

    def wanted_rows(self, count: int) -> list[int]:
        # After a restart the rows that were delivered are computed again, but not wanted again.
        return [row for row in range(count) if self.computed + row >= self._delivered]

    def accept(self, argmax: Array, logits: Array | None) -> None:
        if logits is None or len(argmax) == 0:
            return
        self._delivered += len(logits)
        self.outcomes.put(logits)
        if self._delivered == len(self.tokens):
            self.done = True

    def cancel_now(self) -> None:
        # Whoever cancels reads no more; only one whose model was closed finds this.
        self._end(RequestError("The model was closed before the text was computed."))
