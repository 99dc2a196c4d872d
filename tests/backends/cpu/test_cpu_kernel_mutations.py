"""Faults that the cases must find: kernels that lose a KV block, a token, or the end of a row."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from tests.backends.cpu.kernel_device import KernelDevice

from crossinfer.backends.cpu.kernels import attention_part, attention_tile
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.hal.kernel import Dispatch
from crossinfer.jit.arithmetic import maximum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.target import Target, host_target
from crossinfer.jit.value import Value
from crossinfer.verify.cases import cases_of
from crossinfer.verify.runner import run_case


def finds_fault(device: KernelDevice, *variants: str) -> bool:
    rng = np.random.default_rng()
    return any(
        not outcome.passed
        for case in cases_of(*variants)
        for outcome in run_case(device, case, rng)
    )


def fresh_target(name: str) -> Target:
    """A target whose kernels nobody has built before, so that a changed builder is used."""
    return dataclasses.replace(host_target(), name=name)


@pytest.fixture
def device(request: pytest.FixtureRequest, empty_cache: object) -> Iterator[KernelDevice]:
    del empty_cache
    with KernelDevice(fresh_target(request.node.name)) as opened:
        yield opened


def test_sound_kernels_pass(device: KernelDevice) -> None:
    assert not finds_fault(device, "attention[f16]", "rms_norm", "swiglu")


@pytest.mark.parametrize("part", ["_scores", "_values"])
def test_a_skipped_block_is_found(
    device: KernelDevice, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    whole = getattr(attention_tile.Tile, part)

    def without_first_block(
        tile: attention_tile.Tile, base: Value, low: Value, high: Value
    ) -> None:
        whole(tile, base, (high - low > BLOCK_TOKENS).select(low + BLOCK_TOKENS, low), high)

    monkeypatch.setattr(attention_tile.Tile, part, without_first_block)
    assert finds_fault(device, "attention[f16]")


def test_a_lost_head_is_found(device: KernelDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    attend = attention_part.Pieces.attend

    def without_last_head(
        pieces: attention_part.Pieces, part: Value, first_head: Value, end_head: Value
    ) -> None:
        attend(pieces, part, first_head, maximum(first_head + 1, end_head - 1))

    monkeypatch.setattr(attention_part.Pieces, "attend", without_last_head)
    assert finds_fault(device, "attention[f16]")


def test_a_hidden_token_that_shows_is_found(
    device: KernelDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide = attention_tile.Tile._hide

    def see_one_more(tile: attention_tile.Tile, query: int, tokens: Value, scores: Value) -> Value:
        return hide(tile, query, tokens - 1, scores)

    monkeypatch.setattr(attention_tile.Tile, "_hide", see_one_more)
    assert finds_fault(device, "attention[f16]")


def test_a_lost_tail_is_found(device: KernelDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = KernelBuilder.tail_mask

    def one_less(k: KernelBuilder, count: Value, lanes: int) -> Value:
        return mask(k, count - 1, lanes)

    monkeypatch.setattr(KernelBuilder, "tail_mask", one_less)
    for op in ("rms_norm", "swiglu"):
        assert finds_fault(device, op)


def test_a_tail_that_is_too_long_is_found(
    device: KernelDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = KernelBuilder.tail_mask

    def one_more(k: KernelBuilder, count: Value, lanes: int) -> Value:
        return mask(k, count + 1, lanes)

    monkeypatch.setattr(KernelBuilder, "tail_mask", one_more)
    assert finds_fault(device, "swiglu")


def test_a_missing_row_is_found() -> None:
    def one_row_less(dispatch: Dispatch) -> bytes:
        (rows,) = struct.unpack_from("<i", dispatch.constants)
        return struct.pack("<i", rows - 1) + dispatch.constants[4:]

    with KernelDevice(host_target(), one_row_less) as device:
        for op in ("embed[q4_k]", "rms_norm", "swiglu"):
            assert finds_fault(device, op)
