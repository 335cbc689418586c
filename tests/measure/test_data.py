"""What candidates are checked on, for every operator: right results pass, wrong ones do not."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from heron_asp.measure.data import bytes_needed, case_of, cases
from heron_asp.operators import KINDS, Operator, operator
from tests.operators.unscheduled import compiled, run

SIZES = {
    "n": 3,
    "m": 3,
    "k": 70,
    "batch": 2,
    "ci": 5,
    "co": 6,
    "c": 5,
    "d": 3,
    "h": 5,
    "w": 6,
    "kd": 2,
    "kh": 3,
    "kw": 2,
}


def small(name: str, dtype: str, layout: str | None = None) -> Operator:
    return operator(name, {key: SIZES[key] for key in KINDS[name].keys}, dtype, layout)


@pytest.mark.parametrize("dtype", ["u8s8s32", "bf16bf16f32", "f16f16f16"])
@pytest.mark.parametrize("name", KINDS)
def test_right_results_pass_and_a_wrong_element_does_not(name: str, dtype: str) -> None:
    if KINDS[name].accumulators and dtype != "bf16bf16f32":
        dtype = "f32f32f32"
    made = small(name, dtype)
    executable = compiled(made)
    for case in cases(made):
        result = run(made, case.inputs, executable)
        assert case.error(result) is None, made.label
        at = tuple(extent - 1 for extent in result.shape)
        wrong = result.copy()
        wrong[at] += 1 if case.tolerance is None else np.ceil(4 * case.tolerance[at] + 1)
        assert (case.error(wrong) or "").startswith("1 of "), made.label


@pytest.mark.parametrize("name", [name for name in KINDS if len(KINDS[name].layouts) > 1])
def test_the_cases_of_another_layout_are_right(name: str) -> None:
    made = small(name, "u8s8s32", "channels-first")
    executable = compiled(made)
    for case in cases(made):
        assert case.error(run(made, case.inputs, executable)) is None


@pytest.mark.parametrize("dtype", ["u8s8s32", "bf16bf16f32"])
@pytest.mark.parametrize(("name", "layout"), [(name, layout) for name in KINDS for layout in KINDS[name].layouts])
def test_pieces_are_checked_as_the_whole_is(
    name: str, layout: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if KINDS[name].accumulators:
        dtype = "bf16bf16f32"
    epilogue = "bias,add,relu" if KINDS[name].channel else ""
    made = operator(name, {key: SIZES[key] for key in KINDS[name].keys}, dtype, layout, epilogue)
    for whole in cases(made):
        for piece in (1, 40):
            monkeypatch.setattr("heron_asp.measure.data._PIECE", piece)
            assert len(list(made.parts(piece))) > 1
            case = case_of(made, whole.name, whole.inputs)
            assert case.expected.dtype == whole.expected.dtype
            np.testing.assert_allclose(case.expected, whole.expected, rtol=0 if made.result.dtype.is_integer else 1e-12)
            right = whole.expected.copy()
            assert case.error(right) is None
            wrong = right.copy()
            wrong[..., -1] += 2**20
            said = case.error(wrong)
            monkeypatch.undo()
            assert (case.tolerance is None) == (whole.tolerance is None)
            if case.tolerance is not None:
                np.testing.assert_allclose(case.tolerance, whole.tolerance, rtol=1e-12)
            assert said == whole.error(wrong)
            assert said is not None


def test_large_inputs_are_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    made = operator("gemm", {"m": 60, "n": 50, "k": 40})
    monkeypatch.setattr("heron_asp.measure.data._PIECE", 1000)
    for case in cases(made)[:2]:
        values = case.inputs["b"]
        assert (values.min(), values.max()) == (-128, 127)
        assert len({piece.tobytes() for piece in np.split(values.ravel(), 2)}) == 2


def test_fixed_contents_are_fixed_in_all_cases() -> None:
    made = operator("scan", {"m": 2, "n": 3, "k": 4})
    assert [case.inputs["l"].tolist() for case in cases(made)] == [np.tri(3, 4, -1).tolist()] * 3


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gemm", {"m": 300, "n": 400, "k": 500}),
        ("conv2d", {"n": 2, "h": 40, "w": 40, "ci": 32, "co": 32, "kh": 3, "kw": 3, "padding": 1}),
        ("conv2d", {"n": 2, "h": 4, "w": 4, "ci": 64, "co": 2, "kh": 3, "kw": 3, "padding": 30}),
        ("conv2d_transposed", {"n": 1, "h": 40, "w": 40, "ci": 32, "co": 32, "kh": 3, "kw": 3, "stride": 2}),
        ("depthwise_conv2d", {"n": 4, "h": 60, "w": 60, "c": 32, "kh": 5, "kw": 5}),
        ("variance", {"m": 300, "k": 1000}),
        ("batch_matmul", {"batch": 20, "m": 512, "n": 512, "k": 16}),
    ],
)
def test_the_memory_that_cases_take_is_known_ahead(name: str, shape: dict[str, int]) -> None:
    made = operator(name, shape)
    tracemalloc.start()
    cases(made)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.9 * peak <= bytes_needed(made) <= 4 * peak
