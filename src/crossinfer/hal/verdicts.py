"""What is known about kernels on this machine's drivers: passed, or barred and why."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from crossinfer.core.cache import atomic_write, cache_folder
from crossinfer.core.records import record
from crossinfer.hal.attempts import Attempt, crashed_attempts
from crossinfer.hal.info import DeviceInfo
from crossinfer.hal.known_failures import KNOWN_FAILURES, KnownFailure

_FILE = "verdicts.json"
_VERSION = 2
_CRASHED = "the process ended twice while it was tried"
_ENDED_ONCE = "the process ended once while it was tried"
"""Of a row that only counts: somebody may have killed the process, so it is tried again."""


@record
class Verdict:
    """The outcome for one kernel on one device and driver; with a `shape`, for that shape alone."""

    device: str
    driver: str
    kernel: str
    passed: bool
    reason: str = ""
    shape: str = ""
    """See `hal.kernel.shape_text`. A verdict on some operands' shapes holds whatever the others'
    are."""
    kernel_code: str = ""


@record
class Measurement:
    """How long something took on one device and driver, in seconds."""

    device: str
    driver: str
    what: str
    seconds: float
    kernel_code: str = ""


@record
class Finding:
    """What is to be recorded about a kernel: passed, or why not."""

    kernel: str
    reason: str = ""
    shape: str = ""
    lasting: bool = True
    """False keeps it for this process only."""


_Row = TypeVar("_Row", Verdict, Measurement)
_Key = tuple[str, ...]


class VerdictStore:
    """Verdicts by device, driver, kernel and shape, kept in a file. Thread-safe.

    A file that cannot be read, or is of another version, is treated as empty and replaced at the
    next save: verdicts can be found again, and a broken cache must not stop anybody. Verdicts on
    the kernels of other code than `DeviceInfo.kernel_code` do not count, and go at the next save.
    """

    def __init__(self, path: Path | None, known: Iterable[KnownFailure] = ()) -> None:
        """`path` None keeps verdicts in memory only.

        `known` ships with the program. A row counts until this machine has seen its case pass, and
        is not saved, so that a later release can correct it.
        """
        self._path = path
        self._lock = threading.Lock()
        self._known = tuple(known)
        self._measured: dict[_Key, Measurement] = {}
        self._passing: dict[_Key, Verdict] = {}
        self._attempts = None if path is None else path.parent / "attempts"
        self._set_found(self._load())
        self._learn_from_crashes()

    @classmethod
    def default(cls) -> VerdictStore:
        """The store in the user's cache folder, with the known failures."""
        return cls(cache_folder("verdicts") / _FILE, KNOWN_FAILURES)

    def find(self, info: DeviceInfo, kernel: str, shape: str = "") -> Verdict | None:
        """The verdict that decides about `kernel` at `shape`: one that bars it, or else a pass.

        Without a shape, the one on every shape.
        """
        fits = self._fitting(info, kernel, shape)
        barred = next((v for v in fits if not v.passed), None)
        return barred or self._known_verdict(info, kernel, shape, fits) or next(iter(fits), None)

    def is_barred(self, info: DeviceInfo, kernel: str, shape: str = "") -> bool:
        """Whether `kernel` failed on this device and driver, and must not be planned."""
        verdict = self.find(info, kernel, shape)
        return verdict is not None and not verdict.passed

    def barred_shapes(self, info: DeviceInfo, kernel: str) -> list[str]:
        """The shapes at which this machine saw `kernel` fail."""
        rows = self._by_kernel.get(_kernel_key(info, kernel), ())
        return [row.shape for row in rows if row.shape and not row.passed]

    def known_failures(self, info: DeviceInfo) -> list[KnownFailure]:
        """The shipped rows that describe this device and driver."""
        return [row for row in self._known if row.concerns(info)]

    def record(
        self, info: DeviceInfo, kernel: str, *, passed: bool, reason: str = "", shape: str = ""
    ) -> None:
        """Keep a verdict, in memory and in the file."""
        self._keep(info, [_verdict(info, kernel, passed, reason, shape)], [])

    def record_all(self, info: DeviceInfo, findings: Iterable[Finding]) -> None:
        """Keep several verdicts at once; one without a reason is a pass."""
        given = [(_verdict(info, f.kernel, not f.reason, f.reason, f.shape), f) for f in findings]
        self._passing |= {_key(row): row for row, f in given if not f.lasting}
        if given:
            self._keep(info, [row for row, f in given if f.lasting], [])

    def attempt(self) -> Attempt:
        """Where to note what is tried (see `note_of`), so that the second crash is a verdict."""
        return Attempt(self._attempts)

    @staticmethod
    def note_of(info: DeviceInfo, findings: Iterable[Finding]) -> bytes:
        """What an attempt notes: the verdicts, if the process should die of it."""
        rows = [_verdict(info, f.kernel, False, _CRASHED, f.shape) for f in findings]
        return json.dumps([dataclasses.asdict(row) for row in rows]).encode()

    def ended_once(self, info: DeviceInfo, kernel: str, shape: str = "") -> bool:
        """Whether a process ended while this was tried, and it did not pass since."""
        row = self._found.get((*_kernel_key(info, kernel), shape))
        return row is not None and row.reason == _ENDED_ONCE

    def _learn_from_crashes(self) -> None:
        crashed: dict[_Key, Verdict] = {}
        for content in crashed_attempts(self._attempts):
            with contextlib.suppress(ValueError):
                crashed |= {_key(row): row for row in _rows(Verdict, json.loads(content))}
        if not crashed:
            return
        with self._lock:
            found = self._load()
            for key, row in crashed.items():
                is_first = key not in found or found[key].reason not in (_ENDED_ONCE, _CRASHED)
                found[key] = dataclasses.replace(row, reason=_ENDED_ONCE) if is_first else row
            self._set_found(found)
            self._save()

    def measured(self, info: DeviceInfo, what: str) -> float | None:
        """The seconds that `record_measured` kept."""
        row = self._measured.get((*_device_key(info), what))
        return None if row is None else row.seconds

    def record_measured(self, info: DeviceInfo, what: str, seconds: float) -> None:
        """Keep how long something took on this device and driver."""
        row = Measurement(info.name, info.driver, what, seconds, info.kernel_code)
        self._keep(info, [], [row])

    def forget(self, info: DeviceInfo) -> None:
        """Drop what this machine found out about a device, on any driver."""
        with self._lock:
            found = {k: v for k, v in self._load().items() if v.device != info.name}
            self._measured = {k: m for k, m in self._measured.items() if m.device != info.name}
            self._set_found(found)
            self._save()

    def all(self) -> list[Verdict]:
        """Every verdict of this machine, by device, driver, kernel and shape."""
        found = [verdict for _, verdict in sorted(self._found.items())]
        return [verdict for verdict in found if verdict.reason != _ENDED_ONCE]

    def _fitting(self, info: DeviceInfo, kernel: str, shape: str) -> list[Verdict]:
        """This machine's verdicts on `kernel` that hold at `shape`, shapes before all shapes."""
        rows = self._by_kernel.get(_kernel_key(info, kernel), ())
        fits = [row for row in rows if row.shape and _covers(row.shape, shape)]
        return fits + [row for row in rows if not row.shape]

    def _known_verdict(
        self, info: DeviceInfo, kernel: str, shape: str, own: Iterable[Verdict]
    ) -> Verdict | None:
        for row in self._known:
            if not row.names(kernel) or not _covers(row.shape, shape) or not row.concerns(info):
                continue
            cured = any(v.passed and (not row.shape or _covers(row.shape, v.shape)) for v in own)
            if not cured:
                return _verdict(info, kernel, False, row.reason, row.shape)
        return None

    def _keep(self, info: DeviceInfo, verdicts: list[Verdict], measured: list[Measurement]) -> None:
        with self._lock:
            # Another process may have saved since we read the file; what it found stays.
            found = self._found | self._load() | {_key(row): row for row in verdicts}
            self._set_found(
                {k: row for k, row in found.items() if not _is_of_other_code(row, info)}
            )
            self._measured |= {_key(row): row for row in measured}
            self._save()

    def _set_found(self, found: Mapping[_Key, Verdict]) -> None:
        by_kernel: dict[_Key, list[Verdict]] = {}
        for row in {**found, **self._passing}.values():
            if row.reason == _ENDED_ONCE:
                continue
            key = (row.device, row.driver, row.kernel_code, row.kernel)
            by_kernel.setdefault(key, []).append(row)
        self._found, self._by_kernel = dict(found), by_kernel

    def _load(self) -> dict[_Key, Verdict]:
        """The file's verdicts; its measurements are added to ours."""
        if self._path is None:
            return {}
        try:
            content = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(content, dict) or content.get("version") != _VERSION:
            return {}
        self._measured |= {_key(m): m for m in _rows(Measurement, content.get("measurements"))}
        return {_key(verdict): verdict for verdict in _rows(Verdict, content.get("verdicts"))}

    def _save(self) -> None:
        if self._path is None:
            return
        content = {
            "version": _VERSION,
            "verdicts": [dataclasses.asdict(row) for _, row in sorted(self._found.items())],
            "measurements": [dataclasses.asdict(row) for _, row in sorted(self._measured.items())],
        }
        # A verdict can be found again, so a folder that may only be read stops nobody.
        with contextlib.suppress(OSError), atomic_write(self._path) as file:
            file.write(json.dumps(content, indent=1).encode())


def _verdict(info: DeviceInfo, kernel: str, passed: bool, reason: str, shape: str) -> Verdict:
    return Verdict(info.name, info.driver, kernel, passed, reason, shape, info.kernel_code)


def _device_key(info: DeviceInfo) -> _Key:
    return info.name, info.driver, info.kernel_code


def _kernel_key(info: DeviceInfo, kernel: str) -> _Key:
    return (*_device_key(info), kernel)


def _key(row: Verdict | Measurement) -> _Key:
    device = row.device, row.driver, row.kernel_code
    return (*device, row.what) if isinstance(row, Measurement) else (*device, row.kernel, row.shape)


def _is_of_other_code(row: Verdict, info: DeviceInfo) -> bool:
    device = row.device, row.driver
    return device == (info.name, info.driver) and row.kernel_code != info.kernel_code


def _covers(rule: str, shape: str) -> bool:
    """Whether every operand's shape in `rule` is among those of `shape`."""
    return not rule or set(rule.split(", ")) <= set(shape.split(", "))


def _rows(kind: type[_Row], rows: Any) -> list[_Row]:
    """The rows of a file that have exactly the fields of `kind`, in their types."""
    types = {field.name: field.type for field in dataclasses.fields(kind)}
    return [
        kind(**row)
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and {k: type(v).__name__ for k, v in row.items()} == types
    ]
