"""The Python half of the C interface: options, handles, codes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer import (
    CrossinferError,
    DeviceError,
    DeviceLost,
    FormatError,
    InvalidUse,
    KernelUnsupported,
    OutOfDeviceMemory,
    PlanError,
    RequestError,
    SettingsError,
    TemplateError,
    TokenizerError,
)
from crossinfer.embedding.handles import HandleTable
from crossinfer.embedding.options import (
    ANSWER_OPTIONS,
    MODEL_OPTIONS,
    Kind,
    parse_messages,
    parse_options,
)
from crossinfer.embedding.status import CallError, Status, message_of, status_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
NAMES = st.sampled_from([*MODEL_OPTIONS, *ANSWER_OPTIONS]) | st.text()
TABLES = st.sampled_from([MODEL_OPTIONS, ANSWER_OPTIONS])


def refusal(call: Callable[[], Any]) -> CallError | None:
    """What a call raises, which may be a CallError alone."""
    try:
        call()
    except CallError as error:
        return error
    return None


@given(st.dictionaries(NAMES, JSON), TABLES)
def test_options_come_through_or_are_refused(
    options: dict[str, Any], known: Mapping[str, Kind]
) -> None:
    good = all(name in known and known[name][0](value) for name, value in options.items())
    error = refusal(lambda: parse_options(json.dumps(options), known))
    assert (error is None) == good
    assert error is None or error.status is Status.INVALID_ARGUMENT
    if good:
        assert set(parse_options(json.dumps(options), known)) == set(options)


@given(st.text(alphabet='{}[]":,0123456789eE+-.truefalsn\\ \n') | st.text(), TABLES)
def test_any_text_is_options_or_refused(text: str, known: Mapping[str, Kind]) -> None:
    for error in (
        refusal(lambda: parse_options(text, known)),
        refusal(lambda: parse_messages(text)),
    ):
        assert error is None or error.status is Status.INVALID_ARGUMENT


def test_deep_nesting_and_long_numbers_are_refused() -> None:
    for text in ("[" * 100_000, '{"seed":' * 100_000, '{"seed": ' + "9" * 100_000 + "}"):
        with pytest.raises(CallError, match="not valid JSON"):
            parse_options(text, ANSWER_OPTIONS)


def test_options_keep_their_values() -> None:
    text = '{"logit_bias": {"7": -Infinity, "8": 1}, "max_tokens": null, "stop": [], "top_p": 1}'
    assert parse_options(text, ANSWER_OPTIONS) == {
        "logit_bias": {7: float("-inf"), 8: 1},
        "max_tokens": None,
        "stop": [],
        "top_p": 1,
    }
    assert parse_options(None, ANSWER_OPTIONS) == {}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (FormatError("x"), Status.FORMAT),
        (TokenizerError("x"), Status.TOKENIZER),
        (TemplateError("x"), Status.TEMPLATE),
        (PlanError("x"), Status.PLAN),
        (RequestError("x"), Status.REQUEST),
        (SettingsError("x"), Status.SETTINGS),
        (DeviceError("x"), Status.DEVICE),
        (DeviceLost("gpu", "x"), Status.DEVICE_LOST),
        (OutOfDeviceMemory("x"), Status.OUT_OF_DEVICE_MEMORY),
        (KernelUnsupported("x"), Status.UNSUPPORTED),
        (InvalidUse("x"), Status.INVALID_USE),
        (MemoryError(), Status.OUT_OF_MEMORY),
        (CallError(Status.SHUT_DOWN, "x"), Status.SHUT_DOWN),
        (CrossinferError("x"), Status.INTERNAL),
        (ZeroDivisionError("x"), Status.INTERNAL),
        (KeyboardInterrupt(), Status.INTERNAL),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_has_a_code_and_a_sentence(error: BaseException, status: Status) -> None:
    assert status_of(error) is status
    assert status.value < 0
    assert message_of(error)


def test_handles_are_never_used_twice_and_know_their_kind() -> None:
    models, answers = HandleTable[str]("a model"), HandleTable[str]("an answer")
    first, other = models.add("m"), answers.add("a")
    assert models.find(first) == "m"
    for number in (0, other, first + 10**6, 2**64 - 1):
        with pytest.raises(CallError, match="no handle of a model"):
            models.find(number)
    assert models.remove(first) == "m"
    with pytest.raises(CallError, match="released"):
        models.remove(first)
    assert models.add("m") not in (first, other)


def test_one_of_many_threads_removes_a_handle() -> None:
    table = HandleTable[str]("a thing")
    number, refusals = table.add("thing"), list[CallError | None]()

    def remove() -> None:
        refusals.append(refusal(lambda: table.remove(number)))

    threads = [threading.Thread(target=remove) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refusals.count(None) == 1
    assert all(error is None or error.status is Status.INVALID_HANDLE for error in refusals)


def test_a_closed_table_takes_nothing_more() -> None:
    table = HandleTable[str]("a thing")
    number = table.add("thing")
    assert table.close() == ["thing"]
    with pytest.raises(CallError) as found:
        table.add("late")
    assert found.value.status is Status.SHUT_DOWN
    with pytest.raises(CallError):
        table.find(number)
