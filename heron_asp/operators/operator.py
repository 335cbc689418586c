"""An operator: a tensor expression over named shape keys, with a reference that does not go through TVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.dtypes import DType, dtype_triple
from heron_asp.errors import HeronError
from heron_asp.operators.kind import LARGEST_TENSOR, WEIGHT, Exact, Names, OperatorKind, TensorSpec
from heron_asp.resources import suggestion

LARGEST_EXTENT = 2**24
LARGEST_SUM = 2**53 - 1  # float64 holds all integers up to it


@dataclass(frozen=True)
class Operator:
    """An operator instance.

    Attributes:
        kind: the operator family.
        shape: the value of each shape key, optional ones included.
        dtype: activation, weight and accumulator types, e.g. `u8s8s32`.
        layout: how the tensors lie in memory: a layout of the family.
    """

    kind: OperatorKind
    shape: Mapping[str, int]
    dtype: str
    layout: str

    @property
    def name(self) -> str:
        """The name of the operator family."""
        return self.kind.name

    @property
    def constant(self) -> frozenset[str]:
        """Names of the tensors that are known ahead of the call."""
        return self.kind.constant

    @property
    def strided(self) -> bool:
        """Whether calls may take leading dimensions."""
        return self.kind.strided

    @cached_property
    def extents(self) -> Mapping[str, int]:
        """The shape keys and what follows from them, such as the height of the result."""
        return {**self.shape, **self.kind.derived(self.shape)}

    @cached_property
    def axes(self) -> Mapping[str, Names]:
        """The dimensions of each tensor as the kernel sees them, as names of extents."""
        layout = self.kind.layouts[self.layout]
        return {**layout.tensors, **layout.views(self.extents)}

    @cached_property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """All tensors in the order of the arguments; the result is the last."""
        types = dtype_triple(self.dtype)
        made = []
        for (name, keys), slot in zip(self.kind.layouts[self.layout].tensors.items(), self.kind.slots, strict=True):
            shape = tuple(self.extents[key] for key in keys)
            view = tuple(self.extents[key] for key in self.axes[name])
            made.append(TensorSpec(name, shape, types[slot], () if view == shape else view))
        return tuple(made)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The operands, in the order of the arguments."""
        return self.tensors[:-1]

    @property
    def result(self) -> TensorSpec:
        """The tensor that is written."""
        return self.tensors[-1]

    @cached_property
    def constants(self) -> dict[str, npt.NDArray[Any]]:
        """The tensors whose contents are fixed, by name, in the numpy type of their elements."""
        types = {spec.name: spec.dtype.numpy for spec in self.inputs}
        found = self.kind.contents(self.extents, self.layout)
        return {name: array.astype(types[name]) for name, array in found.items()}

    @property
    def operations(self) -> int:
        """Useful arithmetic operations of one call, as the field counts them: a multiply and an add for each term."""
        return self.kind.operations(self.extents)

    @property
    def terms(self) -> int:
        """How many products an element of the result adds up at most."""
        return self.kind.terms(self.extents)

    @property
    def said(self) -> Mapping[str, int]:
        """The shape without what is as by default."""
        return self.kind.said(self.shape)

    @property
    def label(self) -> str:
        """Kind, dtype, layout where it is not the default, and shape in one line: `gemm u8s8s32 m=64,n=64,k=64`."""
        layout = "" if self.layout == self.kind.layout else f" {self.layout}"
        return f"{self.name} {self.dtype}{layout} " + ",".join(f"{key}={value}" for key, value in self.said.items())

    def prim_func(self) -> Any:
        """The operator as a TIR PrimFunc over plain row-major tensors of `TensorSpec.kernel_shape`."""
        from tvm import te

        inputs = [te.placeholder(spec.kernel_shape, spec.dtype.storage, name=spec.name) for spec in self.inputs]
        return te.create_prim_func([*inputs, self.kind.build(self, *inputs)])

    def reference(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Exact:
        """The result in float64.

        Exact for integers, whose sums stay below 2**53 (`operator` refuses others), so float64 BLAS serves, 40 times
        faster than numpy's integer product; a 32-bit accumulator then wraps, see `wrap`. The rounding of floats is far
        below the tolerance.
        """
        arrays = [inputs[spec.name].astype(np.float64) for spec in self.inputs]
        return self.kind.reference(self.extents, arrays, self.layout)

    def magnitude(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Exact:
        """What bounds the rounding error of any order of summation: the sum of absolute products."""
        arrays = [inputs[spec.name].astype(np.float64) for spec in self.inputs]
        if self.kind.magnitude is not None:
            return self.kind.magnitude(self.extents, arrays, self.layout)
        return self.kind.reference(self.extents, [np.abs(array) for array in arrays], self.layout)


def wrap(exact: Exact, dtype: DType) -> npt.NDArray[Any]:
    """The exact integer result as a wrapping accumulator holds it."""
    if dtype.bounds is None:
        return exact
    low, high = dtype.bounds
    span = high - low + 1
    return (np.mod(exact.astype(np.int64) - low, span) + low).astype(dtype.numpy)


def parse_shape(text: str) -> dict[str, int]:
    """Parses `m=64,n=64,k=64`.

    Raises:
        HeronError: a part is not `key=number`, or a key comes twice.
    """
    shape: dict[str, int] = {}
    for part in text.split(","):
        key, separator, value = part.strip().partition("=")
        if not separator or not key or not value.strip().isdigit():
            raise HeronError(f"-s {text}: '{part.strip()}' is not key=extent with an extent in digits")
        if key in shape:
            raise HeronError(f"-s {text}: '{key}' is given twice")
        shape[key] = int(value)
    return shape


def operator(name: str, shape: Mapping[str, int], dtype: str | None = None, layout: str | None = None) -> Operator:
    """Makes an operator instance.

    Args:
        name: an operator family, e.g. `gemm`.
        shape: a value for each shape key of the family; optional ones may be left out.
        dtype: activation, weight and accumulator types; by default those of the family, mostly `u8s8s32`.
        layout: how the tensors lie in memory, e.g. `channels-first`; by default the family's first layout.

    Raises:
        HeronError: unknown operator, key, dtype or layout, a missing key, a shape that makes no sense, a tensor of
            more than 2**31 - 1 elements, or sums of integers that may exceed 2**53.
    """
    from heron_asp.operators import KINDS

    if name not in KINDS:
        raise HeronError(f"unknown operator '{name}'", suggestion(name, KINDS))
    kind = KINDS[name]
    if layout is not None and layout not in kind.layouts:
        raise HeronError(f"{name} has no layout '{layout}'", suggestion(layout, kind.layouts))
    made = Operator(kind, _shape(kind, shape), dtype or kind.dtype, layout or kind.layout)
    for tensor in made.tensors:
        size = prod(tensor.shape)
        if size > LARGEST_TENSOR:
            raise HeronError(f"{name}: tensor {tensor.name} of {size} elements is larger than {LARGEST_TENSOR}")
    _check_types(made)
    return made


def _shape(kind: OperatorKind, shape: Mapping[str, int]) -> dict[str, int]:
    """All shape keys with their values."""
    for key in shape:
        if key not in kind.every_key:
            raise HeronError(f"{kind.name} has no shape key '{key}'", suggestion(key, kind.every_key))
    missing = [key for key in kind.keys if key not in shape]
    if missing:
        raise HeronError(
            f"{kind.name} lacks the shape key{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            "give all of them: -s " + ",".join(f"{key}=…" for key in kind.keys),
        )
    for key, extent in shape.items():
        least = kind.least.get(key, 1)
        if not least <= extent <= LARGEST_EXTENT:
            raise HeronError(f"{kind.name}: {key}={extent} is outside {least}..{LARGEST_EXTENT}")
    return kind.complete(shape)


def _check_types(made: Operator) -> None:
    name, result = f"{made.name} {made.dtype}", made.result.dtype
    if result.name == "bf16":  # the result has no type whose arithmetic TVM compiles
        raise HeronError(f"{name}: bf16 cannot accumulate", "accumulate in f32: bf16bf16f32")
    allowed = made.kind.accumulators
    if allowed and result.name not in allowed:
        raise HeronError(f"{name}: accumulates in {' or '.join(allowed)} only", f"e.g. --dtype {made.kind.dtype}")
    if result.is_integer and not all(spec.dtype.is_integer for spec in made.inputs):
        raise HeronError(f"{name}: an integer cannot accumulate floats", "accumulate in f32")
    if WEIGHT not in made.kind.slots and dtype_triple(made.dtype)[0] != dtype_triple(made.dtype)[1]:
        raise HeronError(f"{name}: both factors are the same tensor, of one type", f"e.g. --dtype {made.kind.dtype}")
    bounds = [tensor.dtype.bounds for tensor in made.tensors]
    if all(bounds) and made.terms * prod(max(map(abs, bound)) for bound in bounds[:-1] if bound) > LARGEST_SUM:
        raise HeronError(f"{name}: sums may exceed 2**53, beyond the exact reference", "use narrower operand types")
