"""What `crossinfer bench` measures."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from crossinfer.core.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossinfer.core.progress import Progress
    from crossinfer.engine.generation import Generation
    from crossinfer.engine.llm import LLM
    from crossinfer.hal.device import Device
    from crossinfer.hal.limits import Limits, ReadProbe
    from crossinfer.hal.timer import TimedKernel


@dataclasses.dataclass(frozen=True)
class Speed:
    """Medians over the repetitions, with the lowest and the highest of them."""

    prefill_tokens_per_s: float
    prefill_range: tuple[float, float]
    decode_tokens_per_s: float
    decode_range: tuple[float, float]
    first_token_s: float
    end_tokens_barred: bool
    """Whether a logit bias kept the answers from ending early, so that the host sampled."""


_PAIRS = 12
"""Short answers, each between two readings of memory."""
_SHORT_PROMPT = 16
_SHORT_ANSWER = 17


@dataclasses.dataclass(frozen=True)
class ReadShare:
    """Decode beside the reading of memory, in the same tenths of a second: medians."""

    read_gb_s: float
    """GB a second (10^9) that memory was read at."""
    read_share: float
    """What decode had of it, all bytes of a step counted (see `plan.work`)."""


@dataclasses.dataclass(frozen=True)
class EndOfContext:
    """Decode where the context ends: medians over the repetitions."""

    tokens_per_s: float
    expected_tokens_per_s: float | None
    """What the KV cache's further bytes leave of the speed at the context's start, both measured in
    the same tenths of a second; None where the read rate is unknown, or start and end are one.
    """
    share: float | None
    """What was reached of that."""


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """What the speeds are of the device's limits, measured beside them; None: unknown.

    G operations a second and GB a second (10^9), see `plan.work`.
    """

    prefill_gops: float
    peak_gops: float | None
    decode_gb_s: float
    read_gb_s: float | None
    """See `ReadShare`, as of `read_share`."""
    read_share: float | None
    decode_end_gb_s: float | None
    """At the end of the context, if that was measured."""


class Benchmark:
    """Answers of a fixed length to random prompts, which are the same every time."""

    def __init__(self, llm: LLM, prompt_tokens: int, generate: int, progress: Progress) -> None:
        """Raises RequestError if the context is too short for a prompt and its answer."""
        if prompt_tokens + generate > llm.context:
            raise RequestError(
                f"A prompt of {prompt_tokens} tokens and an answer of {generate} do not fit the "
                f"context of {llm.context} tokens; take fewer, or a larger context."
            )
        self._llm = llm
        self._prompt_tokens = prompt_tokens
        self._generate = generate
        self._progress = progress
        self.seed = 0
        """Of the prompts of the next measurement."""
        self._bias: dict[int, float] = {}

    def speed(self, repetitions: int) -> Speed:
        """The medians of so many answers. Raises what LLM.generate raises."""
        stats = [self._numbered_answer(number).stats for number in range(repetitions)]
        prefill = [s.prefill_tokens_per_s for s in stats]
        decode = [s.decode_tokens_per_s for s in stats]
        return Speed(
            statistics.median(prefill),
            (min(prefill), max(prefill)),
            statistics.median(decode),
            (min(decode), max(decode)),
            statistics.median(s.first_token_s for s in stats),
            bool(self._bias),
        )

    def at_end(self, repetitions: int) -> EndOfContext:
        """So many short answers that end where the context does.

        Right after each, memory is read and a short prompt answered, see `read_share`. Raises what
        LLM.generate raises.
        """
        prompt_tokens = self._end_prompt
        device = self._only_device() if prompt_tokens > _SHORT_PROMPT + _SHORT_ANSWER else None
        probe = None if device is None else device.read_probe()
        if probe is None:
            ends = [self._short_decode(n, prompt_tokens) for n in range(repetitions)]
            return EndOfContext(statistics.median(ends), None, None)
        with contextlib.closing(probe):
            pairs = [self._end_beside_start(probe, n, prompt_tokens) for n in range(repetitions)]
        return EndOfContext(
            statistics.median(end for end, _ in pairs),
            statistics.median(expected for _, expected in pairs),
            statistics.median(end / expected for end, expected in pairs),
        )

    @property
    def _end_prompt(self) -> int:
        """Tokens of a prompt whose short answer ends where the context does."""
        return max(1, self._llm.context - _SHORT_ANSWER)

    def limits(self) -> Limits | None:
        """The limits of the device that does all of the work; None if several share it."""
        device = self._only_device()
        return None if device is None else device.measure_limits()

    def read_share(self) -> ReadShare | None:
        """Decode's share of the rate at which the device that does all of the work reads memory.

        Answers are short, and the memory is read right before and after each: on a shared machine
        its rate changes within seconds. None if it cannot be told, or the context is too short.
        """
        device = self._only_device()
        probe = None if device is None else device.read_probe()
        if probe is None:
            return None
        with contextlib.closing(probe):
            if self._llm.context < _SHORT_PROMPT + _SHORT_ANSWER:
                return None
            pairs = [self._beside_reading(probe, number) for number in range(_PAIRS)]
        return ReadShare(
            statistics.median(read for _, read in pairs) / 1e9,
            statistics.median(decode / read for decode, read in pairs),
        )

    def efficiency(
        self,
        speed: Speed,
        end: EndOfContext | None,
        limits: Sequence[Limits | None],
        share: ReadShare | None,
    ) -> Efficiency:
        """`limits` as measured before and after the speeds: the higher peak counts."""
        work = self._llm.count_work()
        peaks = [
            peak
            for measured in limits
            if measured is not None
            and (peak := measured.operations_per_s(work.products)) is not None
        ]
        seconds = self._prompt_tokens / max(speed.prefill_tokens_per_s, 1e-9)
        middle = self._prompt_tokens + self._generate / 2
        end_bytes = work.decode_bytes((self._end_prompt + self._llm.context) / 2)
        return Efficiency(
            prefill_gops=work.prefill_operations(self._prompt_tokens) / seconds / 1e9,
            peak_gops=max(peaks) / 1e9 if peaks else None,
            decode_gb_s=work.decode_bytes(middle) * speed.decode_tokens_per_s / 1e9,
            read_gb_s=None if share is None else share.read_gb_s,
            read_share=None if share is None else share.read_share,
            decode_end_gb_s=None if end is None else end_bytes * end.tokens_per_s / 1e9,
        )

    def kernels(self) -> list[TimedKernel]:
        """The timeline of one answer; not part of `speed`, since timestamps slow it down."""
        with self._llm.timeline() as kernels:
            self._numbered_answer(0)
        return list(kernels)

    def _numbered_answer(self, number: int) -> Generation:
        return self._answer(self._prompt(number, self._prompt_tokens), self._generate)

    def _only_device(self) -> Device | None:
        plan = self._llm.plan
        (device, *others) = {segment.device for segment in plan.segments}
        return None if others else plan.devices[device]

    def _beside_reading(self, probe: ReadProbe, number: int) -> tuple[float, float]:
        """Bytes a second of a short answer's decode, and of reading before and after it."""
        before = _read(probe)
        decode = self._short_decode(number, _SHORT_PROMPT)
        after = _read(probe)
        return decode * self._short_bytes(_SHORT_PROMPT), (before + after) / 2

    def _end_beside_start(
        self, probe: ReadProbe, number: int, prompt_tokens: int
    ) -> tuple[float, float]:
        """Tokens a second behind a prompt that nearly fills the context, and those expected."""
        end = self._short_decode(number, prompt_tokens)
        before = _read(probe)
        start = self._short_decode(number, _SHORT_PROMPT)
        read = (before + _read(probe)) / 2
        further = self._short_bytes(prompt_tokens) - self._short_bytes(_SHORT_PROMPT)
        return end, 1 / (1 / start + further / read)

    def _short_decode(self, number: int, prompt_tokens: int) -> float:
        """Tokens a second of a short answer's decode."""
        prompt = self._prompt(number, prompt_tokens)
        return self._answer(prompt, _SHORT_ANSWER).stats.decode_tokens_per_s

    def _short_bytes(self, prompt_tokens: int) -> float:
        """Of a token in the middle of a short answer."""
        work = self._llm.count_work()
        return work.decode_bytes(prompt_tokens + _SHORT_ANSWER / 2)

    def _answer(self, prompt: list[int], tokens: int) -> Generation:
        answer = self._generated(prompt, tokens)
        if answer.stats.generated_tokens < tokens and answer.finish_reason == "stop":
            # Only now, since a bias costs a download of the logits at every token.
            self._bias = dict.fromkeys(self._llm.tokenizer.end_ids, -math.inf)
            answer = self._generated(prompt, tokens)
        return answer

    def _generated(self, prompt: list[int], tokens: int) -> Generation:
        return self._llm.generate(
            prompt,
            max_tokens=tokens,
            logit_bias=self._bias,
            progress=self._progress,
        )

    def _prompt(self, number: int, tokens: int) -> list[int]:
        """A prompt of its own for each repetition, so that no cache of prefixes can help."""
        generator = np.random.default_rng(self.seed + number)
        vocabulary = self._llm.tokenizer.vocab_size
        return [int(token) for token in generator.integers(vocabulary, size=tokens)]


def _read(probe: ReadProbe) -> float:
    """Bytes a second; the first reading after something else may wait for sleeping workers."""
    return max(probe.bytes_per_s() for _ in range(2))
