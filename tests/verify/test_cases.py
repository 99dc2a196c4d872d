"""That the table of cases covers what it promises."""

from __future__ import annotations

import numpy as np
import pytest

from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import BLOCK_FORMATS
from crossinfer.formats.table_formats import Q8_32
from crossinfer.graph.batch import PADDING_BLOCK
from crossinfer.graph.ops import OPS
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.tolerance import Tolerance
from crossinfer.hal.buffer import Role
from crossinfer.verify.batches import LAYOUTS, make_tables, owned_slots
from crossinfer.verify.case import Case
from crossinfer.verify.cases import all_cases, cases_of


def test_every_op_is_covered() -> None:
    assert list(dict.fromkeys(case.op.name for case in all_cases())) == [op.name for op in OPS]


def test_names_are_unique() -> None:
    names = [case.name for case in all_cases()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("op", ["embed", "linear"])
def test_every_storage_is_covered(op: str) -> None:
    storages = (DType.F32, DType.F16, DType.BF16, *BLOCK_FORMATS, Q8_32)
    expected = {f"{op}[{storage.label}]" for storage in storages}
    assert {case.variant for case in cases_of(op)} == expected
    for variant in expected:
        classes = {case.shape_class for case in cases_of(variant)}
        assert {"single row", "few rows", "many rows"} <= classes


@pytest.mark.parametrize("op", ["attention", "rope_kv", "rope_attention"])
def test_every_layout_is_covered_for_each_cache(op: str) -> None:
    for variant in (f"{op}[f16]", f"{op}[f32]"):
        assert {case.shape_class for case in cases_of(variant)} >= LAYOUTS.keys()


def test_heads_windows_and_rotations() -> None:
    ops = [case.op for case in cases_of("attention") if isinstance(case.op, Attention)]
    assert {op.window for op in ops} == {None, 1, 15, 16, 17}
    ratios = {
        case.inputs["q"].shape[1] // (case.inputs["cache"].shape[2] * case.inputs["cache"].shape[4])
        for case in cases_of("attention")
    }
    assert {1, 3, 7} <= ratios
    ropes = {case.op.interleaved for case in cases_of("rope_kv") if isinstance(case.op, RopeKv)}
    assert ropes == {False, True}


def test_optional_operands_are_there_and_not() -> None:
    for op in OPS:
        optional = {rule.name for rule in op.inputs if rule.optional}
        given = [optional & case.inputs.keys() for case in cases_of(op.name)]
        assert set() in given
        assert optional in given
        assert set().union(*given) == optional


def test_layouts() -> None:
    sequences = [pair for layout in LAYOUTS.values() for pair in layout.sequences]
    assert {1, 15, 16, 17} <= {length for _, length in sequences}
    assert any(1 < rows < length for rows, length in sequences)
    assert any(layout.padding_rows and layout.padding_sequences for layout in LAYOUTS.values())


@pytest.mark.parametrize("name", LAYOUTS)
def test_tables(name: str) -> None:
    layout = LAYOUTS[name]
    tables = make_tables(np.random.default_rng(5), layout)
    assert {table.dtype for table in tables.values()} == {np.dtype(np.int32)}
    assert tables["block_table"].shape == (layout.slots, layout.table_blocks)
    assert len(tables["query_start"]) == layout.slots + 1
    assert tables["query_start"][-1] + layout.padding_rows == layout.rows
    used = tables["block_table"][tables["block_table"] != PADDING_BLOCK]
    assert len(set(used.tolist())) == len(used)
    assert used.max() < layout.kv_blocks
    owned = owned_slots(tables, layout.kv_blocks)
    assert owned.sum() == tables["kv_len"].sum()
    assert not owned[PADDING_BLOCK].any()


def test_block_tables_are_shuffled() -> None:
    tables = make_tables(np.random.default_rng(5), LAYOUTS["long"])["block_table"]
    assert not np.all(np.diff(tables[0, :19]) == 1)


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_inputs_fit_their_types_and_are_fresh(case: Case) -> None:
    rng = np.random.default_rng(1)
    first, second = case.make(rng), case.make(rng)
    assert first.keys() == case.inputs.keys()
    for name, operand in case.inputs.items():
        assert first[name].nbytes == operand.storage.bytes_for(operand.shape)
    assert any(not np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_what_is_expected_is_float64_and_mostly_finite(case: Case) -> None:
    stored = case.make(np.random.default_rng(2))
    before = {name: array.copy() for name, array in stored.items()}
    expected = case.expected(stored)
    assert expected.keys() == {*case.outputs(), *case.updated()}
    for name, values in expected.items():
        operand = case.operands()[name]
        assert values.shape == operand.shape
        part = values[case.defined(name, stored)]
        if operand.storage is not DType.I32:
            assert values.dtype == np.float64
            assert np.mean(np.isfinite(part)) >= 0.4
            assert np.any(part != 0)
    for name, array in stored.items():
        np.testing.assert_array_equal(array, before[name])


def test_padding_is_not_defined() -> None:
    case = next(case for case in cases_of("rope_kv[f32]") if case.shape_class == "ragged")
    stored = case.make(np.random.default_rng(1))
    assert case.defined("q", stored) == slice(0, 25)
    assert case.inputs["q"].shape[0] == 30
    assert case.defined("cache", stored) == slice(1, None)
    assert case.inputs["cache"].role is Role.KV_CACHE


def test_tolerances() -> None:
    def tolerance(variant: str, name: str) -> Tolerance:
        return cases_of(variant)[0].tolerance(name)

    assert tolerance("rope_kv[f16]", "cache") is Tolerance.HALF
    assert tolerance("rope_kv[f32]", "cache") is Tolerance.F32
    assert tolerance("rope_kv[f16]", "q") is Tolerance.F32
    assert tolerance("attention[f16]", "output") is Tolerance.F32
    assert tolerance("argmax", "output") is Tolerance.EXACT
