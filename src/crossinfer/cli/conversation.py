"""The turns of a chat: what was said, and the next answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from crossinfer.cli.answer import receive
from crossinfer.core.errors import RequestError, TemplateError, TokenizerError

if TYPE_CHECKING:
    from crossinfer.cli.options import GenerationOptions
    from crossinfer.cli.progress_bars import ProgressBars
    from crossinfer.engine.llm import LLM


def note(text: str) -> None:
    """Something that the model did not say: on stderr, so that stdout has answers alone."""
    print(text, file=sys.stderr, flush=True)


class Conversation:
    """Messages so far; `answer` prints the next answer and keeps it."""

    def __init__(
        self, llm: LLM, system: str | None, bars: ProgressBars, given: GenerationOptions
    ) -> None:
        self._llm = llm
        self._beginning = [] if system is None else [{"role": "system", "content": system}]
        self._messages = list(self._beginning)
        self._bars = bars
        self._given = given

    def reset(self) -> None:
        """Forget all but the system message."""
        self._messages = list(self._beginning)

    def answer(self, text: str) -> None:
        """Print the answer to `text`. A turn that fails or stays empty is dropped, with a note."""
        messages = [*self._messages, {"role": "user", "content": text}]
        try:
            stream = self._llm.stream_chat(messages, progress=self._bars, **self._given)
            generation = receive(stream, self._bars, show=True)
        except (RequestError, TemplateError, TokenizerError) as error:
            self._bars.hide()
            note(f"{error} This turn was dropped; /reset begins a new conversation.")
            return
        if generation.text:
            answer = {"role": "assistant", "content": generation.text}
            self._messages = [*messages, answer]
        stats, context = generation.stats, self._llm.context
        if stats.prompt_tokens + stats.generated_tokens >= context:
            note(
                f"The context of {context} tokens is full, so the answer was cut; /reset begins a "
                "new conversation."
            )
        elif generation.finish_reason == "length":
            note(f"The answer was cut after {stats.generated_tokens} tokens; see --max-tokens.")
