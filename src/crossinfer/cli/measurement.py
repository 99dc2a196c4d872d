"""What `crossinfer bench` measures."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from crossinfer.core.errors import RequestError
from crossinfer.plan.work import count_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossinfer.core.progress import Progress
    from crossinfer.engine.generation import Generation
    from crossinfer.engine.llm import LLM
    from crossinfer.hal.limits import Limits
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


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """What the speeds are of the device's limits, measured beside them; None: unknown.

    G operations a second and GB a second (10^9), see `plan.work`.
    """

    prefill_gops: float
    peak_gops: float | None
    decode_gb_s: float
    read_gb_s: float | None
    decode_end_gb_s: float | None
    """At the end of the context, if that was measured."""
    decode_end_expected_tokens_per_s: float | None
    """What is left there of the speed of decode by the KV cache's further bytes at `read_gb_s`."""


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
        stats = [self._answer(number).stats for number in range(repetitions)]
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

    def decode_at_end(self) -> float:
        """Tokens a second of an answer that ends where the context does."""
        prompt = self._prompt(0, self._llm.context - self._generate)
        return self._generated(prompt).stats.decode_tokens_per_s

    def limits(self) -> Limits | None:
        """The limits of the device that does all of the work; None if several share it."""
        plan = self._llm.plan
        (device, *others) = {segment.device for segment in plan.segments}
        return None if others else plan.devices[device].measure_limits()

    def efficiency(
        self, speed: Speed, decode_end: float | None, limits: Sequence[Limits | None]
    ) -> Efficiency:
        """`limits` as measured before and after the speeds: the higher ones count."""
        work = count_work(self._llm.plan)
        known = [measured for measured in limits if measured is not None]
        peaks = [
            peak
            for measured in known
            if (peak := measured.operations_per_s(work.products)) is not None
        ]
        seconds = self._prompt_tokens / max(speed.prefill_tokens_per_s, 1e-9)
        middle = self._prompt_tokens + self._generate / 2
        end = self._llm.context - self._generate / 2
        read = max(m.read_bytes_per_s for m in known) if known else None
        end_gb_s = expected = None
        if decode_end is not None:
            end_gb_s = work.decode_bytes(end) * decode_end / 1e9
            if read is not None and speed.decode_tokens_per_s > 0:
                further = work.decode_bytes(end) - work.decode_bytes(middle)
                expected = 1 / (1 / speed.decode_tokens_per_s + further / read)
        return Efficiency(
            prefill_gops=work.prefill_operations(self._prompt_tokens) / seconds / 1e9,
            peak_gops=max(peaks) / 1e9 if peaks else None,
            decode_gb_s=work.decode_bytes(middle) * speed.decode_tokens_per_s / 1e9,
            read_gb_s=None if read is None else read / 1e9,
            decode_end_gb_s=end_gb_s,
            decode_end_expected_tokens_per_s=expected,
        )

    def kernels(self) -> list[TimedKernel]:
        """The timeline of one answer; not part of `speed`, since timestamps slow it down."""
        with self._llm.timeline() as kernels:
            self._answer(0)
        return list(kernels)

    def _answer(self, number: int) -> Generation:
        prompt = self._prompt(number, self._prompt_tokens)
        answer = self._generated(prompt)
        if answer.stats.generated_tokens < self._generate and answer.finish_reason == "stop":
            # Only now, since a bias costs a download of the logits at every token.
            self._bias = dict.fromkeys(self._llm.tokenizer.end_ids, -math.inf)
            answer = self._generated(prompt)
        return answer

    def _generated(self, prompt: list[int]) -> Generation:
        return self._llm.generate(
            prompt,
            max_tokens=self._generate,
            logit_bias=self._bias,
            progress=self._progress,
        )

    def _prompt(self, number: int, tokens: int) -> list[int]:
        """A prompt of its own for each repetition, so that no cache of prefixes can help."""
        generator = np.random.default_rng(self.seed + number)
        vocabulary = self._llm.tokenizer.vocab_size
        return [int(token) for token in generator.integers(vocabulary, size=tokens)]
