"""The functions behind `crossinfer.h`: C values in, Python calls, codes out.

`native/library.c` has checked the pointers that results are written to. Whatever is raised here
becomes a code and a text for `crossinfer_last_error`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

import crossinfer
from crossinfer.embedding.answer import Answer
from crossinfer.embedding.handles import HandleTable
from crossinfer.embedding.options import (
    ANSWER_OPTIONS,
    MODEL_OPTIONS,
    parse_messages,
    parse_options,
)
from crossinfer.embedding.status import FINISH_REASONS, CallError, Status, message_of, status_of
from crossinfer.engine.generation import Generation
from crossinfer.engine.llm import LLM
from crossinfer.hal.device import Device


def check_version(built: str) -> None:
    """Raises CallError unless `libcrossinfer` was built from this package."""
    if built != crossinfer.__version__:
        raise CallError(
            Status.PYTHON,
            f"libcrossinfer is of version {built} and the package of {crossinfer.__version__}",
        )


def define(ffi: Any, library: Any) -> None:
    """Make the methods of `Entries` the inner functions of `libcrossinfer`."""
    entries = Entries(ffi)
    for name in dir(entries):
        if name.startswith("inner_"):
            entry = _guarded(getattr(entries, name), library.cx_set_error)
            ffi.def_extern(name=name, error=Status.INTERNAL.value)(entry)


def _guarded(
    entry: Callable[..., Status | None], set_error: Callable[[bytes], None]
) -> Callable[..., int]:
    @functools.wraps(entry)
    def call(*arguments: Any) -> int:
        try:
            return (entry(*arguments) or Status.OK).value
        except BaseException as error:  # whatever it is, it must not cross
            set_error(message_of(error).replace("\0", "\\0").encode(errors="replace"))
            return status_of(error).value

    return call


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of the host; `close` also closes the host's device on our side."""

    llm: LLM
    close: Callable[[], None]


class HostLock(contextlib.AbstractContextManager[None]):
    """A lock of the host."""

    def __init__(self, lock: Callable[[], None], unlock: Callable[[], None]) -> None:
        self._lock = lock
        self._unlock = unlock

    def __enter__(self) -> None:
        self._lock()

    def __exit__(self, *error: object) -> None:
        self._unlock()


class Entries:
    """One method for each function of `native/inner.h`. Thread-safe."""

    def __init__(self, ffi: Any) -> None:
        self._ffi = ffi
        self._models: HandleTable[Model] = HandleTable("a model")
        self._answers: HandleTable[Answer] = HandleTable("an answer")
        self._returned = threading.local()  # what C code of each thread still reads

    def inner_create(self, model: Any, options: Any, created: Any) -> None:
        created[0] = self._load(model, options, None)

    def inner_create_with_d3d12(
        self, device: Any, queue: Any, model: Any, options: Any, created: Any
    ) -> None:
        opened = crossinfer.from_d3d12(self._address(device), self._address(queue))
        created[0] = self._load(model, options, opened)

    def inner_create_with_vulkan(
        self,
        instance: Any,
        physical_device: Any,
        device: Any,
        queue_family: int,
        queue: Any,
        lock_queue: Any,
        unlock_queue: Any,
        user: Any,
        model: Any,
        options: Any,
        created: Any,
    ) -> None:
        lock = None
        if lock_queue != self._ffi.NULL:
            lock = HostLock(lambda: lock_queue(user), lambda: unlock_queue(user))
        opened = crossinfer.from_vulkan(
            self._address(instance),
            self._address(physical_device),
            self._address(device),
            queue_family,
            self._address(queue),
            queue_lock=lock,
        )
        created[0] = self._load(model, options, opened)

    def inner_destroy(self, model: int) -> None:
        self._models.remove(model).close()

    def inner_prompt(self, model: int, text: Any, options: Any, started: Any) -> None:
        llm = self._models.find(model).llm
        prompt = self._text(text, "The text")
        stream = llm.stream(prompt, **self._answer_options(options))
        started[0] = self._answers.add(Answer(stream))

    def inner_chat(self, model: int, messages: Any, options: Any, started: Any) -> None:
        llm = self._models.find(model).llm
        conversation = parse_messages(self._text(messages, "The messages"))
        stream = llm.stream_chat(conversation, **self._answer_options(options))
        started[0] = self._answers.add(Answer(stream))

    def inner_next(self, answer: int, timeout_ms: int, piece: Any, length: Any) -> Status:
        timeout_s = None if timeout_ms < 0 else timeout_ms / 1e3
        text = self._answers.find(answer).next_piece(timeout_s)
        data = (text or "").encode()
        self._returned.piece = self._ffi.new("char[]", data)
        piece[0], length[0] = self._returned.piece, len(data)
        if text is None:
            return Status.END
        return Status.OK if text else Status.PENDING

    def inner_step(self, model: int, max_dispatches: int, max_ms: float, submitted: Any) -> Status:
        done = self._models.find(model).llm.step(
            max_dispatches=max_dispatches or None, max_ms=max_ms or None
        )
        submitted[0] = done.dispatches
        return Status.IDLE if done.idle else Status.OK

    def inner_cancel(self, answer: int) -> None:
        self._answers.find(answer).cancel()

    def inner_stats(
        self, answer: int, finish_reason: Any, tokens: Any, times: Any, sizes: Any
    ) -> Status:
        generation = self._answers.find(answer).generation
        if generation is None:
            return Status.PENDING
        stats = generation.stats
        finish_reason[0] = FINISH_REASONS[generation.finish_reason]
        tokens[0], tokens[1] = stats.prompt_tokens, stats.generated_tokens
        times[0] = stats.first_token_s
        times[1], times[2] = stats.prefill_tokens_per_s, stats.decode_tokens_per_s
        sizes[0], sizes[1], sizes[2] = stats.weight_bytes, stats.kv_bytes, stats.activation_bytes
        return Status.OK

    def inner_tokens(self, answer: int, tokens: Any, capacity: int, count: Any) -> Status:
        generation: Generation | None = self._answers.find(answer).generation
        if generation is None:
            return Status.PENDING
        count[0] = len(generation.tokens)
        for position, token in enumerate(generation.tokens[:capacity]):
            tokens[position] = token
        return Status.OK

    def inner_release(self, answer: int) -> None:
        self._answers.remove(answer).cancel()

    def inner_close_all(self) -> None:
        for model in self._models.close():
            model.close()
        self._answers.close()

    def _load(self, model: Any, options: Any, device: Device | None) -> int:
        """A handle of a new model; a given device is closed with it, or at once if it fails."""
        with contextlib.ExitStack() as stack:
            if device is not None:
                stack.enter_context(device)
            keywords = parse_options(self._optional(options, "The options"), MODEL_OPTIONS)
            if device is not None:
                others = keywords.get("device", [])
                keywords["device"] = [device, *([others] if isinstance(others, str) else others)]
            name = self._optional(model, "The name of the model")
            llm = stack.enter_context(LLM(name, **keywords))
            model_of_host = Model(llm, stack.pop_all().close)
        try:
            return self._models.add(model_of_host)
        except CallError:
            model_of_host.close()
            raise

    def _answer_options(self, options: Any) -> dict[str, Any]:
        return parse_options(self._optional(options, "The options"), ANSWER_OPTIONS)

    def _optional(self, text: Any, what: str) -> str | None:
        return None if text == self._ffi.NULL else self._text(text, what)

    def _text(self, text: Any, what: str) -> str:
        data: bytes = self._ffi.string(text)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            message = f"{what} is not UTF-8: byte {error.start} is {data[error.start]:#04x}."
            raise CallError(Status.INVALID_ARGUMENT, message) from None

    def _address(self, pointer: Any) -> int:
        return int(self._ffi.cast("uintptr_t", pointer))
