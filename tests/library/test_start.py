"""Signed activations through an exported library: what the start of the sums takes is packed with the weights."""

from __future__ import annotations

import numpy as np
import pytest

from heron_asp.library import CCompiler, export_tuned
from heron_asp.library.call import SharedLibrary
from heron_asp.target import Target
from tests.library.conftest import IMAGE, NAME, Exported, interface_of, sampled

PROGRAMS: tuple[dict[str, object], ...] = (
    {"name": "gemm", "m": 17, "n": 33, "k": 9},
    {"name": "gemm", "m": 40, "n": 33, "k": 9, "threads": 2},
    {"name": "conv2d", **IMAGE, "co": 33, "padding": 1, "epilogue": "bias,relu,requantize=s8:per-channel"},
    {"name": "scan", "m": 9, "n": 40, "k": 40},
)


@pytest.fixture(scope="module")
def signed(runnable: Target, compiler: CCompiler, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A library of kernels that read signed activations; the export checks them against the reference."""
    folder = tmp_path_factory.mktemp("signed")
    programs = [sampled(runnable, dtype="s8s8s32", **program) for program in PROGRAMS]  # type: ignore[arg-type]
    return Exported(folder, export_tuned(programs, folder, NAME))


def test_all_kernels_run_on_the_instruction_and_are_checked(signed: Exported) -> None:
    assert [kernel.intrinsics for kernel in signed.manifest.kernels] == [("vpdpbusd",)] * len(PROGRAMS)
    assert all(kernel.checked for kernel in signed.manifest.kernels)


def test_the_packed_weights_hold_the_start(signed: Exported) -> None:
    packed = {
        kernel.symbol: kernel.packed[0] for kernel in signed.manifest.kernels if kernel.function == "gemm_s8s8s32"
    }
    assert {(one.shape, one.bytes) for one in packed.values()} == {((48 * 12 + 48 * 4,), 48 * 12 + 48 * 4)}


@pytest.mark.parametrize("gap", [0, 5])
def test_a_product_equals_numpy(signed: Exported, runnable: Target, gap: int) -> None:
    made = sampled(runnable, "gemm", "s8s8s32", m=17, n=33, k=9).task.operator
    rng = np.random.default_rng(3)
    inputs = {
        "a": rng.choice(np.array([-128, -1, 0, 127], np.int8), (17, 9)),
        "b": rng.choice(np.array([-128, -1, 0, 127], np.int8), (9, 33)),
    }
    expected = inputs["a"].astype(np.int64) @ inputs["b"].astype(np.int64)

    def work(library: SharedLibrary) -> object:
        return library.compute(interface_of(made), made, inputs, gap)

    assert (np.asarray(signed.call(work)) == expected).all()
