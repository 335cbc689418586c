"""Operands with fixed contents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from heron_asp.errors import InternalError
from heron_asp.library.baked import bake
from heron_asp.library.choice import Kernel, choose
from heron_asp.library.functions import copy_function
from heron_asp.target import Target
from tests.library.conftest import Exported, sampled

TRIANGLE = np.tri(40, 40, -1, dtype=np.int8)


def scans(target: Target) -> list[Kernel]:
    kernels, _ = choose([sampled(target, "scan", m=m, n=40, k=40) for m in (9, 17)])
    return kernels


def test_equal_operands_are_kept_once(zen4: Target) -> None:
    kernels = scans(zen4)
    first, second = (bake(kernels)[kernel.symbol]["l"] for kernel in kernels)
    assert first == second
    assert first.symbol.startswith("scan_u8s8s32_l_")
    packed = np.frombuffer(first.data, np.int8)
    assert packed.nbytes == kernels[0].inside["l"].bytes
    assert packed.sum() == TRIANGLE.sum()  # packing moves elements and adds zeros
    assert set(packed) == {0, 1}


def test_the_library_has_them_once(exported: Exported, zen4: Target) -> None:
    kernels = scans(zen4)
    data = bake(kernels)[kernels[0].symbol]["l"].data
    assert exported.file.read_bytes().count(data) == 1
    entries = [kernel for kernel in exported.manifest.kernels if kernel.function == "scan_u8s8s32"]
    assert [(kernel.shape["m"], [one.tensor for one in kernel.inside]) for kernel in entries] == [
        (9, ["l"]),
        (17, ["l"]),
    ]
    assert not any(kernel.packed for kernel in entries)


def test_what_a_program_takes_as_it_is_stays_as_it_is(zen4: Target) -> None:
    kernel = scans(zen4)[0]
    plain = replace(kernel, program=replace(kernel.program, packings=()))
    assert bake([plain])[plain.symbol]["l"].data == TRIANGLE.tobytes()


def test_a_packing_that_fails_is_named(zen4: Target) -> None:
    kernel = scans(zen4)[0]
    wrong = replace(kernel.inside["l"], function=copy_function((3, 3), "int8"))
    kernel.inside["l"] = wrong
    with pytest.raises(InternalError, match=r"scan_u8s8s32_m9_n40_k40_t1_l_any: cannot be packed: .*reshape"):
        bake([kernel])


def test_operators_without_any_have_none(zen4: Target) -> None:
    kernels, _ = choose([sampled(zen4, "gemm", m=16, n=16, k=16)])
    assert bake(kernels) == {kernels[0].symbol: {}}
