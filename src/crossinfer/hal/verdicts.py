"""What is known about kernels on this machine's drivers: passed, or barred and why."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterable
from pathlib import Path

from crossinfer.core.cache import atomic_write, cache_folder
from crossinfer.hal.info import DeviceInfo

_FILE = "verdicts.json"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The outcome for one kernel on one device and driver."""

    device: str
    driver: str
    kernel: str
    passed: bool
    reason: str = ""


class VerdictStore:
    """Verdicts by device, driver and kernel, kept in a file. Thread-safe.

    A file that cannot be read is treated as empty and replaced at the next save: verdicts can be
    found again, and a broken cache must not stop anybody.
    """

    def __init__(self, path: Path | None, known: Iterable[Verdict] = ()) -> None:
        """`path` None keeps verdicts in memory only.

        `known` ships with the program. It counts where this machine has no verdict of its own, and
        is not saved, so that a later release can correct it.
        """
        self._path = path
        self._lock = threading.Lock()
        self._known = {_key(verdict): verdict for verdict in known}
        self._found = {_key(verdict): verdict for verdict in _load(path)}

    @classmethod
    def default(cls) -> VerdictStore:
        """The store in the user's cache folder."""
        return cls(cache_folder("verdicts") / _FILE)

    def find(self, info: DeviceInfo, kernel: str) -> Verdict | None:
        key = (info.name, info.driver, kernel)
        return self._found.get(key) or self._known.get(key)

    def is_barred(self, info: DeviceInfo, kernel: str) -> bool:
        """Whether `kernel` failed on this device and driver, and must not be planned."""
        verdict = self.find(info, kernel)
        return verdict is not None and not verdict.passed

    def record(self, info: DeviceInfo, kernel: str, *, passed: bool, reason: str = "") -> None:
        """Keep a verdict, in memory and in the file."""
        verdict = Verdict(info.name, info.driver, kernel, passed, reason)
        with self._lock:
            # Another process may have saved since we read the file; what it found stays.
            found = self._found | {_key(v): v for v in _load(self._path)} | {_key(verdict): verdict}
            self._found = found
            if self._path is not None:
                rows = [dataclasses.asdict(v) for _, v in sorted(found.items())]
                # A verdict can be found again, so a folder that may only be read stops nobody.
                with contextlib.suppress(OSError), atomic_write(self._path) as file:
                    file.write(json.dumps(rows, indent=1).encode())

    def all(self) -> list[Verdict]:
        """Every verdict, by device, driver and kernel."""
        return [verdict for _, verdict in sorted((self._known | self._found).items())]


def _key(verdict: Verdict) -> tuple[str, str, str]:
    return verdict.device, verdict.driver, verdict.kernel


def _load(path: Path | None) -> list[Verdict]:
    if path is None:
        return []
    try:
        rows = json.loads(path.read_bytes())
        verdicts = [Verdict(**row) for row in rows]
    except (OSError, ValueError, TypeError):
        return []
    expected = [field.type for field in dataclasses.fields(Verdict)]
    return [
        verdict
        for verdict in verdicts
        if [type(value).__name__ for value in dataclasses.astuple(verdict)] == expected
    ]
