"""Scan, mean and variance equal numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_asp.errors import HeronError
from heron_asp.operators import operator
from tests.operators.unscheduled import integers, run, stages


@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=10, deadline=None)
def test_scan_sums_what_stands_before(m: int, n: int, k: int) -> None:
    made = operator("scan", {"m": m, "n": n, "k": k})
    inputs = integers(made)
    exact = made.reference(inputs)
    assert (run(made, inputs) == exact).all()
    wide = inputs["x"].astype(np.int64)
    assert exact.tolist() == [[sum(row[:prefix]) for prefix in range(n)] for row in wide.tolist()]


@pytest.mark.parametrize("dtype", ["bf16bf16f32", "f32f32f32", "f16f16f32", "u8u8f32"])
def test_mean_and_variance(dtype: str) -> None:
    for name, in_numpy in (("mean", np.mean), ("variance", np.var)):
        made = operator(name, {"m": 5, "k": 37}, dtype)
        inputs = integers(made)
        exact = made.reference(inputs)
        np.testing.assert_allclose(exact, in_numpy(inputs["x"].astype(np.float64), axis=1), rtol=1e-12)
        np.testing.assert_allclose(run(made, inputs), exact, rtol=1e-5)
        assert stages(made)[-2:] == ["y_sum", "y"]


@pytest.mark.parametrize("shift", [0, 3, 100])
def test_the_error_of_a_variance_stays_within_its_bound(shift: int) -> None:
    made = operator("variance", {"m": 40, "k": 777}, "f32f32f32")
    x = (np.random.default_rng(0).standard_normal((40, 777)) + shift).astype(np.float32)
    error = np.abs(run(made, {"x": x}) - made.reference({"x": x}))
    bound = made.terms * made.result.dtype.epsilon * made.magnitude({"x": x})
    assert (error <= bound).all()
    assert bound.max() < 1e-3 * (1 + shift**2)


def test_the_variance_of_equal_elements_is_not_negative() -> None:
    made = operator("variance", {"m": 3, "k": 100}, "f32f32f32")
    x = np.full((3, 100), [[0.1], [1 / 3], [7.7]], np.float32)
    assert (run(made, {"x": x}) >= 0).all()


def test_fixed_contents_have_the_type_of_their_tensor() -> None:
    triangle = operator("scan", {"m": 2, "n": 3, "k": 4}).constants["l"]
    assert triangle.dtype == np.int8
    assert triangle.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]
    made = operator("mean", {"m": 2, "k": 3})
    assert made.dtype == "bf16bf16f32"
    assert made.constants["ones"].view(np.uint16).tolist() == [0x3F80] * 3
    assert set(made.constants) <= made.constant
    assert operator("gemm", {"m": 2, "n": 3, "k": 4}).constants == {}


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("mean", "u8s8s32", "mean u8s8s32: accumulates in f32 only"),
        ("variance", "f16f16f16", "variance f16f16f16: accumulates in f32 only"),
        ("variance", "u8s8f32", "variance u8s8f32: both factors are the same tensor, of one type"),
        ("mean", "bf16bf16bf16", "mean bf16bf16bf16: bf16 cannot accumulate"),
    ],
)
def test_types_that_make_no_sense_are_refused(name: str, dtype: str, message: str) -> None:
    with pytest.raises(HeronError) as caught:
        operator(name, {"m": 2, "k": 3}, dtype)
    assert caught.value.message == message
