"""What `crossinfer bench` measures."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from crossinfer.core.errors import RequestError

if TYPE_CHECKING:
    from crossinfer.core.progress import Progress
    from crossinfer.engine.generation import Generation
    from crossinfer.engine.llm import LLM
    from crossinfer.hal.timer import TimedKernel


@dataclasses.dataclass(frozen=True)
class Speed:
    """Medians over the repetitions."""

    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    first_token_s: float
    end_tokens_barred: bool
    """Whether a logit bias kept the answers from ending early, so that the host sampled."""


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
        self._bias: dict[int, float] = {}

    def speed(self, repetitions: int) -> Speed:
        """The medians of so many answers. Raises what LLM.generate raises."""
        stats = [self._answer(number).stats for number in range(repetitions)]
        return Speed(
            statistics.median(s.prefill_tokens_per_s for s in stats),
            statistics.median(s.decode_tokens_per_s for s in stats),
            statistics.median(s.first_token_s for s in stats),
            bool(self._bias),
        )

    def kernels(self) -> list[TimedKernel]:
        """The timeline of one answer; not part of `speed`, since timestamps slow it down."""
        with self._llm.timeline() as kernels:
            self._answer(0)
        return list(kernels)

    def _answer(self, number: int) -> Generation:
        prompt = self._prompt(number)
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

    def _prompt(self, number: int) -> list[int]:
        """A prompt of its own for each repetition, so that no cache of prefixes can help."""
        generator = np.random.default_rng(number)
        vocabulary = self._llm.tokenizer.vocab_size
        return [int(token) for token in generator.integers(vocabulary, size=self._prompt_tokens)]
