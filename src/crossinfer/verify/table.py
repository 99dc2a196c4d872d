"""The whole table of cases on one device, which is opened again when a kernel costs it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from crossinfer.core.errors import DeviceError
from crossinfer.core.progress import Progress, no_progress
from crossinfer.core.records import record
from crossinfer.hal.device import Device
from crossinfer.hal.known_failures import KnownFailure
from crossinfer.hal.verdicts import Finding, VerdictStore
from crossinfer.verify.case import Case
from crossinfer.verify.cases_linear import STORAGES, linear_case
from crossinfer.verify.data import Random
from crossinfer.verify.runner import Outcome, findings, run_case, run_lowering

_MOST_LOSSES = 8
"""After so many the rest is not tried: each may have taken the screen away for seconds."""


@record
class KnownOutcome:
    """A known failure of this device, and what its cases say now."""

    row: KnownFailure
    outcomes: tuple[Outcome, ...]
    """Empty if the device has no such kernel."""

    @property
    def is_cured(self) -> bool:
        return bool(self.outcomes) and all(outcome.passed for outcome in self.outcomes)


class TableRun:
    """Runs cases on a device that can be opened again. A context manager."""

    def __init__(self, open_device: Callable[[], Device], store: VerdictStore) -> None:
        """Raises what `open_device` raises."""
        self._open = open_device
        self._store = store
        self._losses = 0
        self.device = open_device()
        self._rng: Random = np.random.default_rng()

    def run(self, cases: Sequence[Case], progress: Progress = no_progress) -> list[Outcome]:
        """One outcome for each way to run each case; verdicts are recorded at the end.

        Raises DeviceLost if the device is lost again and again, DeviceError if it can't be opened.
        """
        outcomes: list[Outcome] = []
        try:
            for number, case in enumerate(cases):
                outcomes += run_case(self.device, case, self._rng)
                progress("Verifying kernels", number + 1, len(cases))
                self._open_again_if_lost()
        finally:
            self._store.record_all(self.device.info, findings(outcomes))
        return outcomes

    def run_known(self) -> list[KnownOutcome]:
        """Try the known failures that concern the device at their shapes; those that pass count.

        Rows without a shape are in `run`'s table already. Raises as `run`.
        """
        return [
            KnownOutcome(row, tuple(self._try(row)))
            for row in self._store.known_failures(self.device.info)
            if row.shape
        ]

    def _try(self, row: KnownFailure) -> Iterator[Outcome]:
        for case in known_cases(row):
            for lowering in self.device.lower(case.op, case.operands()):
                if not any(row.names(kernel) for kernel in lowering.kernel_names):
                    continue
                outcome = run_lowering(self.device, case, lowering, case.make(self._rng))
                if outcome.conclusive:
                    self._store.record_all(
                        self.device.info,
                        [Finding(k, outcome.reason, outcome.shape) for k in outcome.kernels],
                    )
                yield outcome
                self._open_again_if_lost()

    def _open_again_if_lost(self) -> None:
        loss = self.device.lost
        if loss is None:
            return
        self._losses += 1
        if self._losses > _MOST_LOSSES:
            raise loss
        with contextlib.suppress(DeviceError):
            self.device.close()
        self.device = self._open()

    def __enter__(self) -> TableRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.device.close()


def known_cases(row: KnownFailure) -> Iterator[Case]:
    """The products that a row names by the shapes of x and weight, in every storage that fits."""
    shapes = dict(part.split(" ") for part in row.shape.split(", "))
    if shapes.keys() != {"x", "weight"}:
        return
    (T, K), (N, _) = (tuple(map(int, shapes[name].split("x"))) for name in ("x", "weight"))
    for storage in STORAGES:
        if K % storage.block_elements == 0:
            yield linear_case(storage, "known failure", T, N, K)
