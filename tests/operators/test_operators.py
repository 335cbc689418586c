"""Operators and their facts, read off the TIR."""

from __future__ import annotations

import numpy as np
import pytest

from heron_asp.analysis import analyse, analyse_prim_func
from heron_asp.dtypes import dtype_triple
from heron_asp.errors import HeronError
from heron_asp.operators import KINDS, operator, parse_shape
from heron_asp.terms import parse, text


def test_gemm_facts_come_from_the_tir() -> None:
    facts = set(map(text, analyse(operator("gemm", {"m": 8, "n": 9, "k": 7})).facts()))
    assert facts == {
        "block(c)", "axis(c, m, spatial, 8)", "axis(c, n, spatial, 9)", "axis(c, k, reduce, 7)",
        "operand(c, 0, a)", "operand(c, 1, b)", "result(c, c)", "stored(c, s32)",
        "tensor(a, u8)", "tensor(b, s8)", "tensor(c, s32)", "constant(b)",
        "pitch(a, 0, 7)", "pitch(a, 1, 1)", "pitch(b, 0, 9)", "pitch(b, 1, 1)", "pitch(c, 0, 9)", "pitch(c, 1, 1)",
        "access(c, a, 0, m, 1)", "access(c, a, 1, k, 1)", "access(c, b, 0, k, 1)", "access(c, b, 1, n, 1)",
        "access(c, c, 0, m, 1)", "access(c, c, 1, n, 1)",
    }  # fmt: skip


def test_bf16_is_seen_through_its_container() -> None:
    block = analyse(operator("batch_matmul", {"batch": 2, "m": 8, "n": 9, "k": 7}, "bf16bf16f32"))
    assert [tensor.dtype for tensor in (*block.operands, block.result)] == ["bf16", "bf16", "f32"]
    assert not block.constant


def test_gemv_knows_its_matrix_ahead() -> None:
    block = analyse(operator("gemv", {"m": 8, "k": 7}))
    assert block.constant == {"a"}
    assert [(tensor.name, tensor.dtype) for tensor in block.operands] == [("a", "s8"), ("x", "u8")]


def test_strides_of_a_convolution_are_read() -> None:
    from tvm import te

    x = te.placeholder((20,), "float32", name="x")
    w = te.placeholder((3,), "float32", name="w")
    r = te.reduce_axis((0, 3), name="r")
    y = te.compute((9,), lambda i: te.sum(x[i * 2 + r] * w[r], axis=r), name="y")
    block = analyse_prim_func(te.create_prim_func([x, w, y]), frozenset({"w"}))
    accesses = {(a.tensor, a.dim, a.axis, a.stride) for a in block.accesses}
    assert accesses == {("x", 0, "i", 2), ("x", 0, "r", 1), ("w", 0, "r", 1), ("y", 0, "i", 1)}


def test_what_is_no_sum_of_products_is_refused() -> None:
    from tvm import te

    x = te.placeholder((20,), "float32", name="x")
    y = te.compute((20,), lambda i: x[i] + 1.0, name="y")
    with pytest.raises(HeronError, match="0 blocks that add up: none of y"):
        analyse_prim_func(te.create_prim_func([x, y]), frozenset())
    r = te.reduce_axis((0, 4), name="r")
    z = te.compute((4,), lambda i: te.sum(x[(i * r) % 20] * x[r], axis=r), name="z")
    with pytest.raises(HeronError, match="is not affine"):
        analyse_prim_func(te.create_prim_func([x, z]), frozenset())


@pytest.mark.parametrize("name", ["gemm", "batch_matmul", "gemv"])
def test_references_agree_with_numpy(name: str) -> None:
    shape = {
        "gemm": {"m": 3, "n": 5, "k": 7},
        "batch_matmul": {"batch": 2, "m": 3, "n": 5, "k": 7},
        "gemv": {"m": 3, "k": 7},
    }[name]
    made = operator(name, shape)
    rng = np.random.default_rng(0)
    inputs = {spec.name: rng.integers(0, 100, spec.shape).astype(spec.dtype.numpy) for spec in made.inputs}
    first, second = (inputs[spec.name].astype(np.int64) for spec in made.inputs)
    assert (made.reference(inputs) == first @ second).all()
    assert made.operations == 2 * int(np.prod(list(shape.values())))


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.subscripts])
def test_what_is_called_an_einsum_is_one(name: str) -> None:
    made = operator(name, dict(zip(KINDS[name].keys, (2, 5, 7, 3), strict=False)))
    rng = np.random.default_rng(0)
    inputs = {spec.name: rng.integers(0, 100, spec.shape) for spec in made.inputs}
    assert (made.reference(inputs) == np.einsum(made.kind.subscripts, *inputs.values())).all()


def test_sums_beyond_the_exact_reference_are_refused() -> None:
    shape = {"m": 1, "n": 1, "k": 2**24}
    for dtype in ("s32s32s32", "s16s16s32"):
        with pytest.raises(HeronError, match=rf"gemm {dtype}: sums may exceed 2\*\*53") as caught:
            operator("gemm", shape, dtype)
        assert caught.value.hint == "use narrower operand types"
    for dtype in ("u8s8s32", "s16s8s32", "f32f32f32", "s32s32f32"):
        operator("gemm", shape, dtype)
    operator("gemm", {"m": 1, "n": 1, "k": 2**22}, "s16s16s32")


def test_shapes_and_dtypes_are_checked() -> None:
    assert parse_shape("m=1, n=2,k=3") == {"m": 1, "n": 2, "k": 3}
    for wrong, message in (
        ("m", "not key=extent"),
        ("m=1,m=2", "twice"),
        ("m=1.5", "not key=extent"),
        ("m=-1", "not key=extent"),
    ):
        with pytest.raises(HeronError, match=message):
            parse_shape(wrong)
    for name, shape, message in (
        ("gem", {}, "unknown operator 'gem'"),
        ("gemm", {"m": 1, "n": 1}, "lacks the shape key k"),
        ("gemm", {"m": 1, "n": 1, "k": 1, "q": 1}, "no shape key 'q'"),
        ("gemm", {"m": 2**25, "n": 1, "k": 1}, "m=33554432 is outside 1..16777216"),
        ("gemm", {"m": 0, "n": 1, "k": 1}, "m=0 is outside 1"),
        ("gemm", {"m": 2**20, "n": 2**20, "k": 1}, "is larger than"),
    ):
        with pytest.raises(HeronError, match=message):
            operator(name, shape)
    with pytest.raises(HeronError, match="gemm has no layout 'row-mayor'") as caught:
        operator("gemm", {"m": 1, "n": 1, "k": 1}, layout="row-mayor")
    assert "row-major" in (caught.value.hint or "")
    assert [d.name for d in dtype_triple("bf16bf16f32")] == ["bf16", "bf16", "f32"]
    with pytest.raises(HeronError, match="not three element types"):
        dtype_triple("u8s8")


def test_terms_round_trip() -> None:
    for said in ("tile(c, m, register)", "(1, 2)", "c", "-3", '"C x"', "f((a,), 1)"):
        assert parse(text(parse(said)).replace("C x", '"C x"') if "C x" in said else text(parse(said))) == parse(said)
    with pytest.raises(HeronError, match="is not a term"):
        parse("tile(c,")


def test_an_integer_does_not_accumulate_floats() -> None:
    with pytest.raises(HeronError, match="gemm f32f32s32: an integer cannot accumulate floats"):
        operator("gemm", {"m": 2, "n": 2, "k": 2}, "f32f32s32")
