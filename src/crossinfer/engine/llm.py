"""The Python API: one object that loads a model and answers."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import DeviceWarning, RequestError
from crossinfer.core.progress import Progress, no_progress
from crossinfer.core.settings import read_settings
from crossinfer.core.shapes import ceil_div
from crossinfer.engine.demo_model import find_demo_model
from crossinfer.engine.device_row import Devices
from crossinfer.engine.engine import Engine
from crossinfer.engine.generation import Generation
from crossinfer.engine.kv_cache import BlockPool
from crossinfer.engine.recovery import RecoverableRunner
from crossinfer.engine.sampling import SamplingOptions, SamplingParams
from crossinfer.engine.scheduler import Scheduler
from crossinfer.engine.sequence import GenerationSequence
from crossinfer.engine.setup import choose_context, open_runner
from crossinfer.engine.stream import Stream
from crossinfer.engine.token_ids import check_tokens
from crossinfer.formats.model_file import open_model_file
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.hal.info import DeviceInfo
from crossinfer.hal.timer import TimedKernel
from crossinfer.models.model import Model, load_model
from crossinfer.plan.explain import explain, split_sentence
from crossinfer.plan.plan import Plan
from crossinfer.text.chat_template import Message
from crossinfer.text.model_text import ModelText
from crossinfer.text.stops import StopFilter

if TYPE_CHECKING:
    from crossinfer.engine.slices import SliceGate, SliceResult
    from crossinfer.plan.work import Work

DEFAULT_MAX_TOKENS = 512

Prompt = str | Sequence[int]


class LLM:
    """A model on a device, ready to answer. Several threads may share one.

    >>> with LLM() as llm:
    ...     print(llm.chat([{"role": "user", "content": "Why is the sky blue?"}]).text)

    The methods that generate take `max_tokens` (None: until the context is full), `stop` (strings
    that end the answer and are not part of it), `progress` (of a long prompt, in tokens) and the
    fields of `SamplingParams`. They raise RequestError, TokenizerError, TemplateError, DeviceError.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        device: Devices = "auto",
        *,
        context: int | None = None,
        threads: int | None = None,
        kv_dtype: str | None = None,
        precision: str | None = None,
        gpu_layers: int | None = None,
        stream_layers: bool = False,
        step_rows: int | None = None,
        sliced: bool = False,
        wait: bool = True,
        progress: Progress = no_progress,
    ) -> None:
        """Load `model`: a GGUF file (the first part of a split one), a Hugging Face folder, or a
        name on the Hugging Face Hub, `organisation/name[:quant]`; None is the demo model.

        `device` names a device, or several in order of preference, among which the model is placed;
        a Device object is used and not closed. `context` is the longest conversation in tokens
        (default: what the model was made for, at most 4096). `threads` bounds the worker threads of
        CPU devices. `kv_dtype` is "f16" or "f32" (default: f32 for float32 models, else f16).
        `precision` is "exact" or "fast" (default: the setting's, exact): with "fast", a CPU that
        has products of bfloat16 rounds 16-bit weights and what they multiply to it. `gpu_layers`
        is how many layers the first device keeps (default: as many as fit it); the others go to the
        devices that follow, or with `stream_layers` come to the first one, layer by layer, for each
        step. `step_rows` bounds the tokens of one step, and so the longest kernel run (default:
        what suits the device). `sliced` has the model work only while `step` is called, for hosts
        with a frame to show. With `wait=False` weights may still be on their way to a CPU
        afterwards, so that the first prompt is prepared beside them; see `finish_loading`. Then
        several threads tell `progress`.

        Raises FormatError, TokenizerError, PlanError, RequestError, DeviceError.
        """
        settings = read_settings()
        if model is None:
            path = find_demo_model()
        else:
            from crossinfer.engine.hub import find_model  # as others that not every start needs

            path = find_model(model, progress)
        file = open_model_file(path)
        self._model: Model = load_model(file)
        for warning in self._model.warnings:
            warnings.warn(warning, stacklevel=2)
        self.context = choose_context(self._model, context)
        gate: SliceGate | None = None
        if sliced:
            from crossinfer.engine.slices import SliceGate

            gate = SliceGate()
        self._runner = open_runner(
            self._model,
            device,
            threads,
            context=self.context,
            kv_dtype=kv_dtype,
            precision=precision,
            gpu_layers=gpu_layers,
            stream_layers=stream_layers,
            step_rows=step_rows,
            gate=gate,
            progress=progress,
        )
        try:
            self._text = ModelText(file)  # weights are on their way meanwhile
        except BaseException:
            self._runner.close()
            raise
        self.tokenizer = self._text.tokenizer
        if wait:
            self._runner.finish_loading()
        self._engine = Engine(
            self._runner,
            Scheduler(BlockPool(ceil_div(self.context, BLOCK_TOKENS)), self._runner.limits),
            release=self._runner.close,
            trace_steps=settings.debug >= 2,
            gate=gate,
        )
        # Runs at close, when the object is dropped, or before the interpreter ends. Neither the
        # runner nor the engine holds this object, or it would never be dropped.
        self._close = weakref.finalize(self, _close, self._runner, self._engine)
        try:
            for news in self._runner.take_news():
                warnings.warn(news, DeviceWarning, stacklevel=2)
        except DeviceWarning:  # the caller's filters make it an error, which keeps this object
            self.close()
            raise
        if settings.debug >= 1:
            print(self.explain(), file=sys.stderr)

    def finish_loading(self) -> None:
        """Wait for weights that are still on their way: for a model opened with `wait=False`.

        The first answer does so, too, and raises the same: FormatError (then so do all later ones),
        DeviceError. Raises RequestError if the model is closed meanwhile.
        """
        self._runner.wait_for_weights()

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = DEFAULT_MAX_TOKENS,
        stop: Sequence[str] = (),
        progress: Progress = no_progress,
        **sampling: Unpack[SamplingOptions],
    ) -> Generation:
        """Continue `prompt`: text as it stands (no chat template), or token ids."""
        return self.stream(
            prompt, max_tokens=max_tokens, stop=stop, progress=progress, **sampling
        ).result()

    def stream(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = DEFAULT_MAX_TOKENS,
        stop: Sequence[str] = (),
        progress: Progress = no_progress,
        **sampling: Unpack[SamplingOptions],
    ) -> Stream:
        """As `generate`, in pieces of text as they come."""
        tokens = self.tokenize(prompt) if isinstance(prompt, str) else prompt
        end_ids = self.tokenizer.end_ids
        return self._start(tokens, end_ids, max_tokens, stop, progress, sampling)

    def _start(
        self,
        prompt: Sequence[int],
        end_ids: frozenset[int],
        max_tokens: int | None,
        stop: Sequence[str],
        progress: Progress,
        sampling: SamplingOptions,
    ) -> Stream:
        tokens = self._checked(prompt, "prompt")
        params = SamplingParams(**sampling)
        params.check(self._model.config.vocabulary)
        room = self.context - len(tokens)
        if max_tokens is not None:
            if max_tokens < 0:
                raise RequestError(f"max_tokens is {max_tokens}; it must be at least 0.")
            room = min(room, max_tokens)
        sequence = GenerationSequence(
            tokens,
            params=params,
            seed=int.from_bytes(os.urandom(8)) if params.seed is None else params.seed,
            max_tokens=room,
            end_ids=end_ids,
            detokenizer=self.tokenizer.detokenizer(),
            stops=StopFilter(stop),
            memory=self._runner.memory,
            progress=progress,
        )
        self._engine.submit(sequence)
        return Stream(self._engine, sequence, owner=self)

    def chat(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int | None = DEFAULT_MAX_TOKENS,
        stop: Sequence[str] = (),
        progress: Progress = no_progress,
        **sampling: Unpack[SamplingOptions],
    ) -> Generation:
        """Answer `messages`, mappings with `role` and `content`, through the chat template."""
        return self.stream_chat(
            messages, max_tokens=max_tokens, stop=stop, progress=progress, **sampling
        ).result()

    def stream_chat(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int | None = DEFAULT_MAX_TOKENS,
        stop: Sequence[str] = (),
        progress: Progress = no_progress,
        **sampling: Unpack[SamplingOptions],
    ) -> Stream:
        """As `chat`, in pieces of text as they come."""
        tokens = self.chat_tokens(messages)
        return self._start(tokens, self._text.chat_end_ids, max_tokens, stop, progress, sampling)

    def step(
        self, *, max_dispatches: int | None = None, max_ms: float | None = None
    ) -> SliceResult:
        """For a model opened with `sliced=True`: hand at most one slice of work to a device.

        A slice holds at most `max_dispatches` kernel runs, and `max_ms` milliseconds of device time
        as far as measured times tell (one kernel run cannot be cut; None: no bound). Returns when
        it is submitted; while the last slice runs, nothing is. Answers advance only through these
        calls, so a thread that makes them reads its streams by `Stream.next_piece(0)`.

        Raises RequestError.
        """
        if max_dispatches is not None and max_dispatches < 1:
            raise RequestError(f"max_dispatches is {max_dispatches}; it must be at least 1.")
        if max_ms is not None and not 0 < max_ms < math.inf:
            raise RequestError(f"max_ms is {max_ms}; it must be above 0 and finite.")
        from crossinfer.engine.slice_cut import Bounds

        seconds = None if max_ms is None else max_ms / 1e3
        return self._engine.let_through(Bounds(max_dispatches, seconds))

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """The prompt that `chat` makes of `messages`. Raises TemplateError, TokenizerError."""
        return self._text.chat_tokens(messages)

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Token ids of `text`, with a BOS where the model wants one. Raises TokenizerError."""
        return self.tokenizer.encode(text, parse_special=parse_special)

    def detokenize(self, tokens: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of token ids. Raises TokenizerError."""
        return self.tokenizer.decode(tokens, skip_special=skip_special)

    def logits(self, tokens: Sequence[int], *, progress: Progress = no_progress) -> Array:
        """The logits that follow each of `tokens`: float32 [T, vocabulary].

        Raises RequestError, DeviceError.
        """
        from crossinfer.engine.scoring import gather_logits, logits_in_chunks

        tokens = self._checked(tokens, "text")
        with contextlib.closing(logits_in_chunks(self._engine, tokens, progress)) as chunks:
            return gather_logits(chunks, len(tokens), self._model.config.vocabulary)

    def perplexity(self, text: str, *, progress: Progress = no_progress) -> float:
        """exp of the mean negative log-likelihood of the tokens of `text`, the first left out.

        Text longer than the context is cut into windows of it, each on its own. Raises RequestError
        if there are fewer than two tokens, DeviceError if the logits are not finite.
        """
        from crossinfer.engine.scoring import perplexity_of

        tokens = self.tokenize(text)
        if min(len(tokens), self.context) < 2:
            raise RequestError("Perplexity needs a text and a context of at least two tokens.")
        starts = range(0, len(tokens), self.context)
        windows = (tokens[start : start + self.context] for start in starts)
        return perplexity_of(self.token_losses(window, progress=progress) for window in windows)

    def token_losses(self, tokens: Sequence[int], *, progress: Progress = no_progress) -> Array:
        """-ln p of each token given those before it, the first left out: float64 [T - 1].

        Raises RequestError, DeviceError (also if the logits are not finite).
        """
        from crossinfer.engine.scoring import logits_in_chunks, losses_of

        tokens = self._checked(tokens, "text")
        with contextlib.closing(logits_in_chunks(self._engine, tokens, progress)) as chunks:
            return losses_of(tokens, chunks)

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """The devices that the model was placed on, or may be, in order of preference."""
        return tuple(device.info for device in self._runner.plan.devices)

    @property
    def plan(self) -> Plan:
        """The plan of the step that ran last."""
        return self._runner.plan

    def count_work(self) -> Work:
        """What a step has to do at least, in bytes and operations, once the weights are there."""
        return self._runner.current.count_work()

    @property
    def placement(self) -> str | None:
        """A sentence on which layers are where; None if all of them are kept on one device."""
        return split_sentence(self._runner.plan)

    def explain(self) -> str:
        """The plan of the step that ran last: what runs where, with which kernels and memory."""
        return "\n".join((*self._model.notes, *self._runner.reasons, explain(self._runner.plan)))

    @contextlib.contextmanager
    def timeline(self) -> Iterator[list[TimedKernel]]:
        """Within the block, device times of every kernel run are added to the list.

        Starts are seconds from the block's beginning. Timestamps keep kernels from overlapping, so
        a step takes longer than it does without.
        """
        with self._engine.timeline() as kernels:
            yield kernels

    def close(self) -> None:
        """End what runs and release everything that this object opened."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _checked(self, tokens: Iterable[int], what: str) -> list[int]:
        return check_tokens(tokens, what, self.context, self._model.config.vocabulary)


def _close(runner: RecoverableRunner, engine: Engine) -> None:
    runner.stop_loading()  # whose end the engine's thread may be waiting for
    engine.close()
