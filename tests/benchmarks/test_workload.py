"""What the comparisons compute: cases, extents, references."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.machine import Level, Machine, best_of, bound
from peers.ours import operator_of
from peers.suite import chosen, gemm_cases, network_cases, networks, operator_cases
from peers.workload import CONVOLUTIONS, PRODUCTS, Workload, workload

from heron_asp.errors import HeronError
from heron_asp.measure.data import bytes_needed
from heron_asp.operators.operator import wrap

_small = st.integers(1, 9)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Small ones of every operator."""
    name = draw(st.sampled_from([*PRODUCTS, *CONVOLUTIONS]))
    if name in PRODUCTS:
        keys = {"gemv": ("m", "k"), "batch_matmul": ("batch", "m", "n", "k")}.get(name, ("m", "n", "k"))
        return workload(name, {key: draw(_small) for key in keys})
    dims = "dhw"[3 - CONVOLUTIONS[name] :]
    groups = draw(st.integers(1, 2)) if name != "conv2d_transposed" else 1
    shape = {"n": draw(st.integers(1, 2)), "ci": groups * draw(st.integers(1, 3)), "co": groups * draw(_small)}
    shape |= {key: draw(st.integers(1, 3)) for key in ("stride", "dilation")} | {"padding": draw(st.integers(0, 2))}
    for dim in dims:
        shape[f"k{dim}"] = draw(st.integers(1, 3))
        # the kernel fits its padded source, and a transposed one leaves something of it
        shape[dim] = draw(st.integers(shape["dilation"] * (shape[f"k{dim}"] - 1) + 5, 12))
    return workload(name, {**shape, "groups": groups} if groups > 1 else shape)


@given(workloads())
@settings(max_examples=80, deadline=None)
def test_the_reference_is_the_operators(one: Workload) -> None:
    made = operator_of(one)
    source, weights = one.inputs(np.random.default_rng(1))
    slots = {0: source, 1: weights.T if one.operator == "scan" else weights}
    inputs = {spec.name: slots[slot] for spec, slot in zip(made.inputs, made.kind.slots, strict=False)}
    assert made.operations == one.operations
    assert np.array_equal(one.reference(source, weights), wrap(made.reference(inputs), made.result.dtype))


@given(workloads())
@settings(max_examples=80, deadline=None)
def test_useful_operations_are_the_products_without_padding(one: Workload) -> None:
    ones = np.ones(tuple(one.source.values()), np.uint8), np.ones(tuple(one.weights.values()), np.int8)
    assert 2 * int(one.reference(*ones).sum()) == one.useful_operations <= one.operations


def test_sides_of_a_window_count_apart() -> None:
    one = workload("conv1d", {"n": 1, "w": 4, "ci": 1, "co": 1, "kw": 3})
    window = replace(one.windows[0], before=2)
    lopsided = replace(one, windows=(window,), result={"n": 1, "ow": window.result, "co": 1})
    source = np.arange(1, 5, dtype=np.uint8).reshape(1, 4, 1)
    weights = np.array([1, 10, 100], np.int8).reshape(3, 1, 1)
    assert lopsided.reference(source, weights).ravel().tolist() == [100, 210, 321, 432]
    assert window.products == 1 + 2 + 3 + 3


@pytest.mark.parametrize(
    ("operator", "shape", "said"),
    [
        ("gemm", {"m": 1, "k": 2}, "lacks n"),
        ("conv2d", {"n": 1, "h": 8, "w": 8, "ci": 1, "co": 1, "kh": 1, "kw": 1, "kd": 1}, "does not know kd"),
        ("conv1d", {"n": 1, "w": 2, "ci": 1, "co": 1, "kw": 4}, "larger than"),
        ("conv1d", {"n": 1, "w": 2, "ci": 3, "co": 2, "kw": 1, "groups": 2}, "2 groups"),
        ("attention", {}, "no workload"),
    ],
)
def test_shapes_that_make_no_sense(operator: str, shape: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        workload(operator, shape)


def test_the_suite_has_49_cases_of_known_operators() -> None:
    cases = operator_cases()
    assert len(cases) == len({case.name for case in cases}) == 49
    assert all(operator_of(case.workload).operations == case.workload.operations for case in cases)
    assert prod(cases[0].workload.result.values()) == 12 * 512 * 512


def test_every_case_is_checked_within_12_gib() -> None:
    for case in (*operator_cases(), *gemm_cases(), *(layer for name in networks() for layer in network_cases(name))):
        assert bytes_needed(operator_of(case.workload)) < 12 * 2**30, case.name


def test_networks_run_for_one_input() -> None:
    assert networks() == ["resnet50", "vgg16", "inceptionv3", "bert"]
    layers = network_cases("resnet50")
    assert sum(case.count for case in layers) == 54
    assert all(case.workload.source.get("n", 1) == 1 for case in layers)
    assert layers[-1].shape == {"m": 1, "k": 2048, "n": 1000}
    assert [case.shape["batch"] for case in network_cases("bert")] == [1, 12, 12]
    for name in networks():
        assert all(operator_of(case.workload) for case in network_cases(name))


def test_cases_are_chosen_by_name() -> None:
    assert [case.name for case in chosen(operator_cases(), ["G1", "C2D1"])] == ["C2D1", "G1"]
    assert len(chosen(gemm_cases(), [""])) == 5
    with pytest.raises(HeronError, match="C2D7"):
        chosen(operator_cases(), ["C2D7"])
    with pytest.raises(HeronError, match="alexnet"):
        network_cases("alexnet")


def _machine(peak: float = 1e9, overhead: float = 0.0) -> Machine:
    return Machine(1, peak, (Level("L1", 100, 1e3), Level("L2", 1000, 1e2), Level("DRAM", None, 10.0)), overhead)


def test_the_roofline_takes_the_slowest_resource() -> None:
    fits = workload("gemm", {"m": 1, "n": 1, "k": 10})  # reads 10 + 10 bytes
    assert bound(fits, _machine()).name == "L1"
    assert bound(fits, _machine()).seconds == pytest.approx(20e-3)
    assert bound(fits, _machine(peak=10.0)).name == "compute"
    assert bound(fits, _machine(peak=10.0)).seconds == pytest.approx(2.0)
    assert bound(fits, _machine(overhead=1.0)).name == "call"
    spills = workload("gemm", {"m": 1, "n": 1, "k": 1000})  # 100 of 2000 bytes in L1, 900 in L2, the rest in DRAM
    assert bound(spills, _machine()).name == "DRAM"
    assert bound(spills, _machine()).seconds == pytest.approx(0.1 + 9.0 + 100.0)


def test_writing_counts_where_it_is_more_than_reading() -> None:
    grows = workload("gemm", {"m": 10, "n": 10, "k": 1})  # reads 20 bytes, writes 400
    assert bound(grows, _machine()).seconds == pytest.approx(0.1 + 3.0)


def test_a_machine_is_what_it_was_at_its_best() -> None:
    slow = Machine(1, 5.0, (Level("L1", 100, 2.0), Level("DRAM", None, 1.0)), 3.0)
    fast = Machine(1, 4.0, (Level("L1", 100, 1.0), Level("DRAM", None, 9.0)), 2.0)
    assert best_of([slow, fast]) == Machine(1, 5.0, (Level("L1", 100, 2.0), Level("DRAM", None, 9.0)), 2.0)
    assert best_of([slow], [7.0]).peak == 7.0
