"""Epilogues equal their definition, element by element; requantization rounds ties to even and saturates."""

from __future__ import annotations

import numpy as np
import pytest

from heron_asp.errors import HeronError
from heron_asp.measure.data import cases
from heron_asp.operators import KINDS, Operator, operator
from tests.operators.unscheduled import Array, compiled, run, stages

GEMM = {"m": 5, "n": 7, "k": 9}
CONV = {"n": 2, "h": 5, "w": 4, "ci": 6, "co": 4, "kh": 3, "kw": 2, "groups": 2, "padding": 1}
TRANSPOSED = {"n": 2, "h": 3, "w": 4, "ci": 3, "co": 4, "kh": 3, "kw": 3}
WHOLE = "bias,add,relu,requantize=u8:per-channel"
CHANNEL = {"gemm": -1, "batch_matmul": -1, "gemv": -1}  # the dimension of the channels; elsewhere it is the layout's


def defined(made: Operator, inputs: dict[str, Array]) -> Array:
    """By its definition, an element of the sum at a time; Python's round takes ties to the even neighbour."""
    total = operator(made.name, made.shape, made.dtype, made.layout).reference(inputs)
    result = np.zeros(total.shape)
    channel = CHANNEL.get(made.name, 1 if made.layout == "channels-first" else -1)
    for at in np.ndindex(*total.shape):
        value = float(total[at])
        for step in made.epilogue_text.split(","):
            name, _, said = step.partition("=")
            if name == "bias":
                value += float(inputs["bias"][at[channel]])
            elif name == "add":
                value += float(inputs["residual"][at])
            elif name == "relu":
                value = value if value > 0 else 0.0
            elif name == "clip":
                low, high = map(float, said.split(":"))
                value = low if value < low else high if value > high else value
            else:
                scale = inputs["scale"][at[channel] if "per-channel" in said else 0]
                low, high = made.result.dtype.bounds or (0, 0)
                rounded = round(float(np.float32(value) * scale)) + int(inputs["zero_point"][0])
                value = float(min(max(rounded, low), high))
        result[at] = value
    return result


@pytest.mark.parametrize(
    ("name", "shape", "layout", "dtype", "epilogue"),
    [
        ("gemm", GEMM, None, "u8s8s32", "bias"),
        ("gemm", GEMM, None, "u8s8s32", WHOLE),
        ("gemm", GEMM, None, "s8s8s32", "bias,clip=-1000:7,relu,add"),
        ("gemm", GEMM, None, "bf16bf16f32", "bias,relu,add,clip=-0.5:2.5"),
        ("gemv", {"m": 7, "k": 9}, None, "u8s8s32", WHOLE),
        ("batch_matmul", {"batch": 2, **GEMM}, None, "u8s8s32", WHOLE),
        ("conv1d", {"n": 2, "w": 9, "ci": 6, "co": 4, "kw": 3}, None, "u8s8s32", "requantize=s8"),
        ("conv2d", CONV, None, "u8s8s32", WHOLE),
        ("conv2d", CONV, "channels-first", "s8s8s32", "bias,add,requantize=s8:per-channel"),
        ("conv2d", CONV, "channels-first", "f32f32f32", "bias,add,relu"),
        ("depthwise_conv2d", {"n": 2, "h": 5, "w": 4, "c": 5, "kh": 3, "kw": 2}, "channels-first", "u8s8s32", WHOLE),
        ("conv2d_transposed", TRANSPOSED | {"stride": 2}, None, "u8s8s32", WHOLE),
        ("conv2d_transposed", TRANSPOSED | {"stride": 3}, "channels-first", "u8s8s32", WHOLE),
        ("conv2d_transposed", TRANSPOSED, None, "u8s8s32", "bias,relu"),
    ],
)
def test_it_equals_its_definition(
    name: str, shape: dict[str, int], layout: str | None, dtype: str, epilogue: str
) -> None:
    made = operator(name, shape, dtype, layout, epilogue)
    assert stages(made)[-2:] == [f"{made.result.name}_sum", made.result.name]
    executable = compiled(made)
    for case in cases(made):
        assert case.error(run(made, case.inputs, executable)) is None, made.label
        expected = defined(made, case.inputs)
        if case.tolerance is None:
            assert (case.expected == expected).all(), made.label
        else:
            np.testing.assert_allclose(case.expected, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("to", "zero_point", "scale", "expected"),
    [
        ("u8", 0, 0.5, [0, 0, 0, 0, 0, 0, 1, 2, 2, 2]),  # -4 .. 5 halved: ties at the odd ones
        ("s8", 0, 0.5, [-2, -2, -1, 0, 0, 0, 1, 2, 2, 2]),
        ("u8", 3, 0.5, [1, 1, 2, 3, 3, 3, 4, 5, 5, 5]),
        ("u8", 255, 1.0, [251, 252, 253, 254, 255, 255, 255, 255, 255, 255]),
        ("s8", -128, 1.0, [-128, -128, -128, -128, -128, -127, -126, -125, -124, -123]),
        ("s8", 5, 1e30, [-128, -128, -128, -128, 5, 127, 127, 127, 127, 127]),  # far beyond any integer
        ("u8", 7, 3e38, [0, 0, 0, 0, 7, 255, 255, 255, 255, 255]),  # infinite
    ],
)
def test_ties_go_to_even_and_what_is_too_large_saturates(
    to: str, zero_point: int, scale: float, expected: list[int]
) -> None:
    made = operator("gemm", {"m": 10, "n": 1, "k": 1}, "s8s8s32", epilogue=f"requantize={to}")
    numpy = made.result.dtype.numpy
    assert made.result.dtype.name == to
    inputs = {
        "a": np.arange(-4, 6, dtype=np.int8)[:, np.newaxis],
        "b": np.ones((1, 1), np.int8),
        "scale": np.array([scale], np.float32),
        "zero_point": np.array([zero_point], numpy),
    }
    assert run(made, inputs)[:, 0].tolist() == expected
    assert made.reference(inputs)[:, 0].tolist() == expected


def test_cases_have_ties_and_are_not_saturated_all_over() -> None:
    made = operator("gemm", {"m": 64, "n": 64, "k": 16}, epilogue="requantize=u8")
    plain = operator("gemm", made.shape)
    ties = 0
    for case in cases(made):
        exact = plain.reference(case.inputs) * float(case.inputs["scale"][0])
        ties += int((exact - np.floor(exact) == 0.5).sum())
        if case.name == "random":
            assert np.isin(case.expected, [0, 255]).mean() < 0.5
    assert ties > 10


def test_no_sum_of_a_case_leaves_the_accumulator() -> None:
    for epilogue in ("bias,add", "add,bias,relu"):
        made = operator("gemm", {"m": 4, "n": 4, "k": 60_000}, epilogue=epilogue)
        for case in cases(made):
            total = operator("gemm", made.shape).reference(case.inputs) + case.inputs["bias"] + case.inputs["residual"]
            assert np.abs(total).max() < 2**31


def test_the_tensors_of_an_epilogue_stand_before_the_result() -> None:
    made = operator("conv2d", CONV, epilogue=WHOLE)
    assert [(spec.name, spec.shape, spec.kernel_shape, spec.dtype.name) for spec in made.tensors[2:]] == [
        ("bias", (4,), (2, 2), "s32"),
        ("residual", (2, 5, 5, 4), (2, 5, 5, 2, 2), "s32"),
        ("scale", (4,), (2, 2), "f32"),
        ("zero_point", (1,), (1,), "u8"),
        ("y", (2, 5, 5, 4), (2, 5, 5, 2, 2), "u8"),
    ]
    assert [spec.name for spec in made.operands] == ["x", "weight"]
    assert made.label.endswith(f"padding=1,groups=2 + {WHOLE}")
    assert operator("conv2d", CONV, epilogue=made.epilogue_text) == made
    assert not operator("gemm", GEMM, epilogue="relu").strided
    assert operator("gemm", GEMM).strided


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not kind.channel])
def test_what_multiplies_by_no_weights_takes_none(name: str) -> None:
    with pytest.raises(HeronError, match=f"{name} takes no epilogue"):
        operator(name, dict.fromkeys(KINDS[name].keys, 4), epilogue="relu")


@pytest.mark.parametrize(
    ("epilogue", "message", "hint"),
    [
        ("baias", "no step 'baias'", "bias"),
        ("bias,", "no step ''", "relu"),
        ("bias,bias", "'bias' is given twice", ""),
        ("relu=6", "'relu' takes no '=6'", ""),
        ("clip=6", "'clip=6' is not clip=LOW:HIGH", "clip=0:6"),
        ("clip=6:0", "'clip=6:0' leaves nothing", "lower bound comes first"),
        ("clip=nan:0", "'clip=nan:0' leaves nothing", ""),
        ("clip=0:0.5", "0.5 is no number of s32", ""),
        ("clip=0:3000000000", "3000000000 is no number of s32", ""),
        ("clip=0:inf", "inf is no number of s32", ""),
        ("requantize", "'requantize' is not requantize=TYPE", "u8 or s8"),
        ("requantize=s16", "'requantize=s16' is not requantize=TYPE", "u8 or s8"),
        ("requantize=u8:per-row", "is not requantize=TYPE or requantize=TYPE:per-channel", ""),
        ("requantize=u8,relu", "'requantize=u8' must be the last step", ""),
    ],
)
def test_mistakes_are_named(epilogue: str, message: str, hint: str) -> None:
    with pytest.raises(HeronError, match=f"--epilogue {epilogue.split(',')[0]}") as caught:
        operator("gemm", GEMM, epilogue=epilogue)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_only_integers_are_requantized() -> None:
    with pytest.raises(HeronError, match="takes sums of s32, not f32"):
        operator("gemm", GEMM, "bf16bf16f32", epilogue="bias,requantize=u8")
    with pytest.raises(HeronError, match="clip=0:100000: 100000 is no number of f16"):
        operator("gemm", GEMM, "f16f16f16", epilogue="clip=0:100000")
