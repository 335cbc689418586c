"""Calls through the public functions: results, and what is refused."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heron_asp.library import CCompiler, export_tuned
from heron_asp.library.call import Array, SharedLibrary, aligned, spread
from heron_asp.measure.data import cases
from heron_asp.operators import KINDS, Operator, operator
from heron_asp.target import Target
from tests.library.conftest import IMAGE, PROGRAMS, Exported, interface_of, sampled

OK, BAD_ARGUMENT, NULL_POINTER, MISALIGNED, CPU, NO_KERNEL, LEADING_DIMENSION, OUT_OF_MEMORY = range(8)

STRIDED = [
    ("gemm", "u8s8s32", {"m": 64, "n": 64, "k": 64}),
    ("gemm", "u8s8s32", {"m": 17, "n": 33, "k": 9}),
    ("gemm", "u8s8s32", {"m": 128, "n": 64, "k": 64}),
    ("gemm", "bf16bf16f32", {"m": 12, "n": 40, "k": 30}),
    ("gemv", "u8s8s32", {"m": 100, "k": 90}),
    ("batch_matmul", "u8s8s32", {"batch": 3, "m": 10, "n": 24, "k": 12}),
]


def errors(exported: Exported, made: Operator, gap: int, threads: int) -> list[str | None]:
    """What is wrong with the results of a kernel on all test inputs."""

    def work(library: SharedLibrary) -> list[str | None]:
        assert library.set_threads(threads) == OK
        return [case.error(library.compute(interface_of(made), made, case.inputs, gap)) for case in cases(made)]

    found = exported.call(work)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(("name", "dtype", "shape"), STRIDED)
@pytest.mark.parametrize("gap", [0, 1, 64])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_result_equals_the_reference(
    exported: Exported, name: str, dtype: str, shape: dict[str, int], gap: int, threads: int
) -> None:
    assert errors(exported, operator(name, shape, dtype), gap, threads) == [None, None, None]


COMPACT = [one for one in PROGRAMS if "epilogue" in one or not KINDS[str(one["name"])].strided]


@pytest.mark.parametrize("program", COMPACT, ids=lambda program: str(program["name"]))
def test_compact_tensors_are_right_too(exported: Exported, program: dict[str, Any]) -> None:
    shape = {key: value for key, value in program.items() if key in KINDS[program["name"]].every_key}
    said = {key: program[key] for key in ("dtype", "layout", "epilogue") if key in program}
    assert errors(exported, operator(program["name"], shape, **said), 0, 2) == [None, None, None]


def test_export_has_checked_all_kernels(exported: Exported) -> None:
    assert exported.manifest.unchecked is None
    assert all(kernel.checked for kernel in exported.manifest.kernels)


GEMM = operator("gemm", {"m": 64, "n": 64, "k": 64})


class Arguments:
    """Arguments of a gemm call that is all right."""

    def __init__(self, library: SharedLibrary) -> None:
        self.library = library
        self.shape = {"m": 64, "n": 64, "k": 64}
        self.a = aligned((64, 64), np.uint8)
        self.b = aligned((64, 64), np.int8)
        self.packed_b = aligned((4096,), np.uint8)
        self.c = aligned((64, 64), np.int32)

    def call(self, **changed: object) -> int:
        tensors = {"a": self.a, "b": self.packed_b, "c": self.c, **changed}
        return self.library.call(interface_of(GEMM), self.shape, tensors)  # type: ignore[arg-type]

    def pack(self, **changed: object) -> int:
        tensors = {"plain": self.b, "into": self.packed_b, **changed}
        return self.library.pack(interface_of(GEMM).packed[0], self.shape, **tensors)  # type: ignore[arg-type]


def shifted() -> Array:
    """A matrix that begins 16 bytes after a multiple of 64."""
    return aligned((4 + 4096,), np.int32)[4:].reshape(64, 64)


def test_what_is_all_right_is_not_refused(exported: Exported) -> None:
    def work(library: SharedLibrary) -> list[int]:
        arguments = Arguments(library)
        return [arguments.pack(), arguments.call()]

    assert exported.call(work) == [OK, OK]


@pytest.mark.parametrize("tensor", ["a", "b", "c"])
def test_null_and_misaligned_pointers_are_refused(exported: Exported, tensor: str) -> None:
    def work(library: SharedLibrary) -> list[int]:
        arguments = Arguments(library)
        return [arguments.call(**{tensor: None}), arguments.call(**{tensor: shifted()})]

    assert exported.call(work) == [NULL_POINTER, MISALIGNED]


@pytest.mark.parametrize("tensor", ["plain", "into"])
def test_packing_checks_its_pointers(exported: Exported, tensor: str) -> None:
    def work(library: SharedLibrary) -> list[int]:
        arguments = Arguments(library)
        return [arguments.pack(**{tensor: None}), arguments.pack(**{tensor: shifted()})]

    assert exported.call(work) == [NULL_POINTER, MISALIGNED]


def test_shapes_without_a_kernel_are_refused(exported: Exported) -> None:
    def work(library: SharedLibrary) -> list[int]:
        arguments = Arguments(library)
        arguments.shape = {"m": 65, "n": 64, "k": 64}
        found = [arguments.call()]
        arguments.shape = {"m": 64, "n": 64, "k": 63}
        found += [arguments.pack(), library.packed_bytes(interface_of(GEMM).packed[0], arguments.shape)]
        return found

    assert exported.call(work) == [NO_KERNEL, NO_KERNEL, 0]


@pytest.mark.parametrize("extents", [{"m": 0}, {"n": -1}, {"k": 0}])
def test_extents_below_one_are_refused(exported: Exported, extents: dict[str, int]) -> None:
    def work(library: SharedLibrary) -> int:
        arguments = Arguments(library)
        arguments.shape |= extents
        return arguments.call()

    assert exported.call(work) == BAD_ARGUMENT


def test_leading_dimensions_are_checked(exported: Exported) -> None:
    def work(library: SharedLibrary) -> list[int]:
        arguments = Arguments(library)
        short_a, short_c = aligned((64, 63), np.uint8), aligned((64, 63), np.int32)
        far = np.lib.stride_tricks.as_strided(arguments.a, (64, 64), (2**26, 1))  # spans 63 * 2**26 + 64 elements
        short_b = aligned((64, 63), np.int8)
        return [
            arguments.call(a=short_a),
            arguments.call(c=short_c),
            arguments.call(a=far),
            arguments.pack(plain=short_b),
        ]

    assert exported.call(work) == [LEADING_DIMENSION] * 4


CONV = operator("conv2d", {**IMAGE, "padding": 1})


class Convolution:
    """Arguments of a conv2d call that is all right, and the weights packed."""

    def __init__(self, library: SharedLibrary) -> None:
        self.library = library
        self.interface = interface_of(CONV)
        self.sides = {f"padding_{side}": 1 for side in ("top", "bottom", "left", "right")}
        self.case = cases(CONV)[0]
        specs = {spec.name: spec for spec in CONV.tensors}
        self.x, self.weight = (spread(self.case.inputs[name], 0) for name in ("x", "weight"))
        self.packed = aligned((library.packed_bytes(self.interface.packed[0], CONV.shape),), np.uint8)
        self.y = aligned(specs["y"].shape, np.int32)

    def pack(self, **shape: int) -> int:
        said = {**IMAGE, **self.sides, **shape}
        return self.library.pack(self.interface.packed[0], said, self.weight, self.packed)

    def call(self, **shape: int) -> int:
        tensors = {"x": self.x, "weight": self.packed, "y": self.y}
        return self.library.call(self.interface, {**IMAGE, **self.sides, **shape}, tensors)

    def right(self) -> bool:
        return self.case.error(self.y) is None


@pytest.mark.parametrize("more", [{}, {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "groups": 1}])
def test_what_a_struct_leaves_out_is_as_by_default(exported: Exported, more: dict[str, int]) -> None:
    def work(library: SharedLibrary) -> list[object]:
        convolution = Convolution(library)
        return [convolution.pack(**more), convolution.call(**more), convolution.right()]

    assert exported.call(work) == [OK, OK, True]


def test_weights_are_packed_before_the_size_of_the_image_is_known(exported: Exported) -> None:
    def work(library: SharedLibrary) -> list[object]:
        convolution = Convolution(library)
        return [convolution.pack(n=0, h=0, w=-1), convolution.call(), convolution.right()]

    assert exported.call(work) == [OK, OK, True]


@pytest.mark.parametrize(
    ("changed", "packing", "calling"),
    [
        ({"stride_h": -1}, BAD_ARGUMENT, BAD_ARGUMENT),
        ({"padding_left": -1}, BAD_ARGUMENT, BAD_ARGUMENT),
        ({"n": 0}, OK, BAD_ARGUMENT),
        ({"n": 7}, OK, NO_KERNEL),
        ({"padding_left": 0}, NO_KERNEL, NO_KERNEL),
        ({"groups": 3}, NO_KERNEL, NO_KERNEL),
        ({"stride_h": 2}, NO_KERNEL, NO_KERNEL),
    ],
)
def test_numbers_of_a_struct_are_checked(
    exported: Exported, changed: dict[str, int], packing: int, calling: int
) -> None:
    def work(library: SharedLibrary) -> list[int]:
        convolution = Convolution(library)
        return [convolution.pack(**changed), convolution.call(**changed)]

    assert exported.call(work) == [packing, calling]


def test_a_struct_that_is_null_is_refused(exported: Exported) -> None:
    def work(library: SharedLibrary) -> list[int]:
        functions = ctypes.CDLL(str(exported.file))
        null, memory = ctypes.c_void_p(), ctypes.c_void_p(aligned((4096,), np.uint8).ctypes.data)
        return [
            functions.conv2d_u8s8s32(null, memory, memory, memory),
            functions.conv2d_u8s8s32_pack_weight(null, memory, memory),
            functions.conv2d_u8s8s32_packed_weight_bytes(null),
        ]

    assert exported.call(work) == [NULL_POINTER, NULL_POINTER, 0]


def test_threads_out_of_range_are_refused(exported: Exported) -> None:
    def work(library: SharedLibrary) -> list[int]:
        return [library.set_threads(0), library.set_threads(257), library.set_threads(3), library.threads()]

    assert exported.call(work) == [BAD_ARGUMENT, BAD_ARGUMENT, OK, 3]


def test_every_status_has_words(exported: Exported) -> None:
    def work(library: SharedLibrary) -> list[str]:
        return [library.error(status) for status in range(10)]

    words = exported.call(work)
    assert isinstance(words, list)
    assert len(set(words)) == 10
    assert words[0] == "success"
    assert words[9] == "unknown status"


def test_nothing_is_written_between_the_rows_of_a_part_of_a_matrix(exported: Exported) -> None:
    made = operator("gemm", {"m": 17, "n": 33, "k": 9})
    case = cases(made)[0]

    def work(library: SharedLibrary) -> bool:
        wide = aligned((17, 50), np.int32)
        before = wide.copy()
        packed_b = aligned((library.packed_bytes(interface_of(made).packed[0], made.shape),), np.uint8)
        library.pack(interface_of(made).packed[0], made.shape, spread(case.inputs["b"], 0), packed_b)
        tensors = {"a": spread(case.inputs["a"], 3), "b": packed_b, "c": wide[:, :33]}
        assert library.call(interface_of(made), made.shape, tensors) == OK
        return bool((wide[:, 33:] == before[:, 33:]).all() and case.error(wide[:, :33]) is None)

    assert exported.call(work) is True


def test_another_processor_is_refused(runnable: Target, compiler: CCompiler, tmp_path: Path) -> None:
    machine = runnable.machine.model_copy(update={"cpu_flags": (*runnable.machine.cpu_flags, "heron_flag")})
    exotic = replace(runnable, machine=machine)
    manifest = export_tuned([sampled(exotic, "gemm", m=64, n=64, k=64)], tmp_path, "exotic")
    assert manifest.unchecked == "the machine that made the library lacks heron_flag"
    assert not any(kernel.checked for kernel in manifest.kernels)

    def work(library: SharedLibrary) -> list[object]:
        return [Arguments(library).pack(), Arguments(library).call(), "heron_flag" in library.error(CPU)]

    assert Exported(tmp_path, manifest).call(work) == [CPU, CPU, True]
