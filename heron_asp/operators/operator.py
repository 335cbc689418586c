"""An operator: a tensor expression over named shape keys, with a reference that does not go through TVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.dtypes import DType, dtype_triple
from heron_asp.errors import HeronError
from heron_asp.resources import suggestion

Shape = Mapping[str, int]
LARGEST_EXTENT = 2**24
LARGEST_TENSOR = 2**31 - 1
LARGEST_SUM = 2**53 - 1  # float64 holds all integers up to it


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of an operator: its name, its extents (row-major) and its element type."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class OperatorKind:
    """A family of operators that differ in shape and dtype only.

    Attributes:
        name: the name on the command line and in the exported library.
        keys: the shape keys, as in `-s m=64,n=64,k=64`.
        tensors: extents of each tensor as shape keys, inputs first, in the order of the arguments.
        slots: which type of the dtype triple (0 activation, 1 weight, 2 accumulator) each tensor has.
        constant: tensors that are known ahead of the call, such as weights.
        subscripts: the product as an einsum, for the reference and for the number of operations.
        build: makes the TE output from the TE inputs and the shape.
        summary: one line for `--help`.
    """

    name: str
    keys: tuple[str, ...]
    tensors: Mapping[str, tuple[str, ...]]
    slots: tuple[int, ...]
    constant: frozenset[str]
    subscripts: str
    build: Callable[..., Any]
    summary: str


@dataclass(frozen=True)
class Operator:
    """An operator instance.

    Attributes:
        kind: the operator family.
        shape: extents by shape key.
        dtype: activation, weight and accumulator types, e.g. `u8s8s32`.
    """

    kind: OperatorKind
    shape: Mapping[str, int]
    dtype: str

    @property
    def name(self) -> str:
        """The name of the operator family."""
        return self.kind.name

    @property
    def constant(self) -> frozenset[str]:
        """Names of the tensors that are known ahead of the call."""
        return self.kind.constant

    @cached_property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """All tensors in the order of the arguments; the result is the last."""
        types = dtype_triple(self.dtype)
        return tuple(
            TensorSpec(name, tuple(self.shape[key] for key in keys), types[slot])
            for (name, keys), slot in zip(self.kind.tensors.items(), self.kind.slots, strict=True)
        )

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The operands, in the order of the arguments."""
        return self.tensors[:-1]

    @property
    def result(self) -> TensorSpec:
        """The tensor that is written."""
        return self.tensors[-1]

    @property
    def operations(self) -> int:
        """Useful arithmetic operations of one call: a multiply and an add for each term of the product."""
        extents: dict[str, int] = {}
        for letters, tensor in zip(self.kind.subscripts.replace("->", ",").split(","), self.tensors, strict=True):
            extents.update(zip(letters, tensor.shape, strict=True))
        return 2 * prod(extents.values())

    @property
    def terms(self) -> int:
        """How many products each element of the result adds up."""
        return self.operations // (2 * prod(self.result.shape))

    @property
    def label(self) -> str:
        """Kind, dtype and shape in one line, e.g. `gemm u8s8s32 m=64,n=64,k=64`."""
        return f"{self.name} {self.dtype} " + ",".join(f"{key}={self.shape[key]}" for key in self.kind.keys)

    def prim_func(self) -> Any:
        """The operator as a TIR PrimFunc over plain row-major tensors."""
        from tvm import te

        inputs = [te.placeholder(spec.shape, spec.dtype.storage, name=spec.name) for spec in self.inputs]
        output = self.kind.build(*inputs, shape=self.shape, result=self.result, types=[t.dtype for t in self.inputs])
        return te.create_prim_func([*inputs, output])

    def reference(self, inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """The result in float64.

        Exact for integers, whose sums stay below 2**53 (`operator` refuses others), so float64 BLAS serves, 40 times
        faster than numpy's integer product; a 32-bit accumulator then wraps, see `wrap`. The rounding of floats is far
        below the tolerance.
        """
        return _einsum(self.kind.subscripts, [inputs[spec.name].astype(np.float64) for spec in self.inputs])

    def magnitude(self, inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """The sum of absolute products, which bounds the rounding error of any order of summation."""
        arrays = [np.abs(inputs[spec.name].astype(np.float64)) for spec in self.inputs]
        return _einsum(self.kind.subscripts, arrays)


def _einsum(subscripts: str, arrays: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """np.einsum, by way of matmul (BLAS, also in a batch) where the letters stand as in `bmk,bkn->bmn`."""
    operands, result = subscripts.split("->")
    left, right = operands.split(",")
    batch, row, inner, column = left[:-2], left[-2:-1], left[-1:], right[-1:]
    if right == batch + inner + column and result == batch + row + column:
        product: npt.NDArray[np.float64] = np.matmul(arrays[0], arrays[1])
        return product
    summed: npt.NDArray[np.float64] = np.einsum(subscripts, *arrays, optimize=True)
    return summed


def wrap(exact: npt.NDArray[np.float64], dtype: DType) -> npt.NDArray[Any]:
    """The exact integer result as a wrapping accumulator holds it."""
    if dtype.bounds is None:
        return exact
    low, high = dtype.bounds
    span = high - low + 1
    return (np.mod(exact.astype(np.int64) - low, span) + low).astype(dtype.numpy)


def parse_shape(text: str) -> dict[str, int]:
    """Parses `m=64,n=64,k=64`.

    Raises:
        HeronError: a part is not `key=positive integer`, or a key comes twice.
    """
    shape: dict[str, int] = {}
    for part in text.split(","):
        key, separator, value = part.strip().partition("=")
        if not separator or not key or not value.strip().isdigit() or int(value) < 1:
            raise HeronError(f"-s {text}: '{part.strip()}' is not key=extent with an extent of at least 1")
        if key in shape:
            raise HeronError(f"-s {text}: '{key}' is given twice")
        shape[key] = int(value)
    return shape


def operator(name: str, shape: Mapping[str, int], dtype: str = "u8s8s32") -> Operator:
    """Makes an operator instance.

    Args:
        name: an operator family, e.g. `gemm`.
        shape: an extent for each shape key of the family.
        dtype: activation, weight and accumulator types.

    Raises:
        HeronError: unknown operator, key or dtype, a missing key, a tensor of more than 2**31 - 1 elements, or sums of
            integers that may exceed 2**53.
    """
    from heron_asp.operators.products import KINDS

    if name not in KINDS:
        raise HeronError(f"unknown operator '{name}'", suggestion(name, KINDS))
    kind = KINDS[name]
    for key in shape:
        if key not in kind.keys:
            raise HeronError(f"{name} has no shape key '{key}'", suggestion(key, kind.keys))
    missing = [key for key in kind.keys if key not in shape]
    if missing:
        raise HeronError(
            f"{name} lacks the shape key{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            "give all of them: -s " + ",".join(f"{key}=…" for key in kind.keys),
        )
    for key, extent in shape.items():
        if not 1 <= extent <= LARGEST_EXTENT:
            raise HeronError(f"{name}: {key}={extent} is outside 1..{LARGEST_EXTENT}")
    made = Operator(kind, {key: shape[key] for key in kind.keys}, dtype)
    for tensor in made.tensors:
        size = prod(tensor.shape)
        if size > LARGEST_TENSOR:
            raise HeronError(f"{name}: tensor {tensor.name} of {size} elements is larger than {LARGEST_TENSOR}")
    if made.result.dtype.is_integer and not all(spec.dtype.is_integer for spec in made.inputs):
        raise HeronError(f"{name} {dtype}: an integer cannot accumulate floats", "accumulate in f32")
    bounds = [tensor.dtype.bounds for tensor in made.tensors]
    if all(bounds) and made.terms * prod(max(map(abs, bound)) for bound in bounds[:-1] if bound) > LARGEST_SUM:
        raise HeronError(
            f"{name} {dtype}: sums may exceed 2**53, beyond the exact reference", "use narrower operand types"
        )
    return made
