"""The errors that crossinfer raises.

Each message is a plain sentence: what was wrong, where (file, tensor, device or option), and what
to do. A caller that catches `CrossinferError` has caught everything that is not a bug.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shown(value: Any) -> str:
    """A value out of a file for a message: its repr in a short line, whatever the value is."""
    return " ".join(_SHORT.repr(value).split())


class DeviceWarning(UserWarning):
    """A device was lost and made again, or gets a kernel wrong; the work goes on."""


class CrossinferError(Exception):
    """Base of every error that crossinfer raises on purpose."""


class FormatError(CrossinferError):
    """A model file cannot be read, or holds something that is not supported."""


class TokenizerError(CrossinferError):
    """A vocabulary or a text cannot be tokenized or detokenized."""


class TemplateError(CrossinferError):
    """A chat template is missing, broken, or failed on the given messages."""


class PlanError(CrossinferError):
    """No set of devices can run the model as asked."""


class RequestError(CrossinferError):
    """A request asks for something impossible, such as a prompt longer than the context."""


class SettingsError(CrossinferError):
    """An environment variable or option has a value that cannot be used."""


class DeviceError(CrossinferError):
    """Base of the four errors that a device may raise."""


class InFlight(NamedTuple):
    """A kernel run that had been handed to a device and not been seen to end."""

    kernel: str
    label: str
    """The node of the graph that it belongs to; empty outside of a plan."""
    shape: str
    """The shapes of the op's operands, as `x 5x64, weight 32x64`; empty outside of a plan."""


class DeviceLost(DeviceError):  # noqa: N818 - the name that every API uses
    """The device stopped answering; nothing on it is valid any more.

    `reason` is what the API said, `in_flight` the kernels that were running (each once), and
    `dispatches` their runs with the operators and shapes that they belong to. `sentence` is the
    message without its advice.
    """

    def __init__(
        self,
        device: str,
        reason: str,
        in_flight: Sequence[str] = (),
        dispatches: Sequence[InFlight] = (),
    ) -> None:
        # One kernel is the guilty one, so its shape matters; of many there would be a page.
        at = f" ({dispatches[0].shape})" if len(dispatches) == 1 and dispatches[0].shape else ""
        running = f" while running {', '.join(in_flight)}{at}" if in_flight else ""
        self.sentence = f"Device {device} was lost{running}: {reason}."
        super().__init__(f"{self.sentence} Open it again to go on.")
        self.device = device
        self.reason = reason
        self.in_flight = tuple(in_flight)
        self.dispatches = tuple(dispatches)


class OutOfDeviceMemory(DeviceError):  # noqa: N818
    """An allocation does not fit; the message names the size asked for and what is in use."""


class KernelUnsupported(DeviceError):  # noqa: N818
    """The device cannot run this kernel with these shapes and formats."""


class InvalidUse(DeviceError):  # noqa: N818
    """The caller broke the HAL's contract (see `crossinfer.hal`)."""
