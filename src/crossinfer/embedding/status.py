"""What the functions of the C interface return."""

from __future__ import annotations

import enum

from crossinfer.core.errors import (
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
from crossinfer.engine.generation import FinishReason


class Status(enum.IntEnum):
    """The codes of `crossinfer.h`; those below 0 are errors."""

    OK = 0
    END = 1
    PENDING = 2
    IDLE = 3
    INVALID_ARGUMENT = -1
    INVALID_HANDLE = -2
    SHUT_DOWN = -3
    PYTHON = -4
    FORMAT = -5
    TOKENIZER = -6
    TEMPLATE = -7
    PLAN = -8
    REQUEST = -9
    SETTINGS = -10
    DEVICE = -11
    DEVICE_LOST = -12
    OUT_OF_DEVICE_MEMORY = -13
    UNSUPPORTED = -14
    INVALID_USE = -15
    OUT_OF_MEMORY = -16
    INTERNAL = -17


class CallError(CrossinferError):
    """A call of the C interface is wrong in a way that only it knows."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


FINISH_REASONS = {FinishReason.STOP: 1, FinishReason.LENGTH: 2, FinishReason.CANCELLED: 3}

# The first that fits counts, so subclasses come before their bases.
_STATUS_OF: tuple[tuple[type[BaseException], Status], ...] = (
    (FormatError, Status.FORMAT),
    (TokenizerError, Status.TOKENIZER),
    (TemplateError, Status.TEMPLATE),
    (PlanError, Status.PLAN),
    (RequestError, Status.REQUEST),
    (SettingsError, Status.SETTINGS),
    (DeviceLost, Status.DEVICE_LOST),
    (OutOfDeviceMemory, Status.OUT_OF_DEVICE_MEMORY),
    (KernelUnsupported, Status.UNSUPPORTED),
    (InvalidUse, Status.INVALID_USE),
    (DeviceError, Status.DEVICE),
    (MemoryError, Status.OUT_OF_MEMORY),
)


def status_of(error: BaseException) -> Status:
    """The code of an exception; INTERNAL for what is not raised on purpose."""
    if isinstance(error, CallError):
        return error.status
    return next((code for kind, code in _STATUS_OF if isinstance(error, kind)), Status.INTERNAL)


def message_of(error: BaseException) -> str:
    """A sentence for people."""
    if isinstance(error, CrossinferError):
        return str(error)
    if isinstance(error, MemoryError):
        return "The process has no more memory; use a smaller model or a smaller context."
    return f"An unexpected error, which is a fault of crossinfer: {type(error).__name__}: {error}."
