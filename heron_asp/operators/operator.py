"""An operator: a tensor expression over named shape keys, with a reference that does not go through TVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.dtypes import DType, dtype_triple
from heron_asp.errors import HeronError
from heron_asp.operators.epilogue import Extent, Further, Plus, Step, parse_epilogue
from heron_asp.operators.kind import ACCUMULATOR, LARGEST_TENSOR, WEIGHT, Exact, Names, OperatorKind, TensorSpec
from heron_asp.resources import suggestion

LARGEST_EXTENT = 2**24
LARGEST_SUM = 2**53 - 1  # float64 holds all integers up to it


@dataclass(frozen=True)
class Part:
    """A part of an operator.

    Attributes:
        operator: what makes the part of the result, from parts of the operands.
        places: by tensor name, which elements of the tensor are the part's.
    """

    operator: Operator
    places: Mapping[str, tuple[slice, ...]]


@dataclass(frozen=True)
class Operator:
    """An operator instance.

    Attributes:
        kind: the operator family.
        shape: the value of each shape key, optional ones included.
        dtype: activation, weight and accumulator types, e.g. `u8s8s32`.
        layout: how the tensors lie in memory: a layout of the family.
        epilogue: what is done to each element of the sum before it is stored.
    """

    kind: OperatorKind
    shape: Mapping[str, int]
    dtype: str
    layout: str
    epilogue: tuple[Step, ...] = ()

    @property
    def name(self) -> str:
        """The name of the operator family."""
        return self.kind.name

    @property
    def source(self) -> str:
        """The name by which `operator` makes it again."""
        return self.kind.source or self.kind.name

    @property
    def constant(self) -> frozenset[str]:
        """Names of the tensors that are known ahead of the call."""
        return self.kind.constant

    @property
    def strided(self) -> bool:
        """Whether calls may take leading dimensions."""
        return self.kind.strided and not self.epilogue

    @cached_property
    def types(self) -> tuple[DType, DType, DType]:
        """The element types of the two factors, in the order of the operands, and of their sum."""
        types = dtype_triple(self.dtype)
        left, *right, _ = (types[slot] for slot in self.kind.slots)
        return left, (right or [left])[0], types[ACCUMULATOR]

    @cached_property
    def extents(self) -> Mapping[str, int]:
        """The shape keys and what follows from them, such as the height of the result."""
        return {**self.shape, **self.kind.derived(self.shape)}

    @cached_property
    def axes(self) -> Mapping[str, Names]:
        """The dimensions of each tensor as the kernel sees them, as names of extents."""
        layout = self.kind.layouts[self.layout]
        axes = {**layout.tensors, **layout.views(self.extents)}
        result = axes[list(layout.tensors)[-1]]
        return axes | {name: self._axes_of(one, result) for name, one in self._further.items()}

    @cached_property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """All tensors in the order of the arguments: operands, those of the epilogue, the result."""
        layout, types = self.kind.layouts[self.layout].tensors, dtype_triple(self.dtype)
        *operands, result = (
            self._spec(name, keys, types[slot])
            for (name, keys), slot in zip(layout.items(), self.kind.slots, strict=True)
        )
        keys = layout[result.name]
        further = [self._spec(name, self._axes_of(one, keys), one.dtype) for name, one in self._further.items()]
        for step in self.epilogue:
            result = replace(result, dtype=step.result(result.dtype))
        return (*operands, *further, result)

    @cached_property
    def _further(self) -> dict[str, Further]:
        """The tensors of the epilogue."""
        accumulator = self.types[ACCUMULATOR]
        return {name: one for step in self.epilogue for name, one in step.tensors(accumulator).items()}

    def _axes_of(self, one: Further, result: Names) -> Names:
        """Which of the result's axes a tensor of the epilogue has."""
        if one.extent is Extent.CHANNEL:
            return tuple(axis for axis in result if axis in self.kind.channel)
        return result if one.extent is Extent.RESULT else ()

    def _spec(self, name: str, keys: Names, dtype: DType) -> TensorSpec:
        shape = tuple(self.extents[key] for key in keys) or (1,)
        view = tuple(self.extents[key] for key in self.axes[name]) or (1,)
        return TensorSpec(name, shape, dtype, () if view == shape else view)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """All tensors that are read, in the order of the arguments."""
        return self.tensors[:-1]

    @property
    def operands(self) -> tuple[TensorSpec, ...]:
        """Those of them that are multiplied."""
        return self.tensors[: len(self.kind.slots) - 1]

    def name_of_sum(self, followed: bool = False) -> str:
        """The name of the reduction in TE; `followed`: what is no epilogue makes the result of it."""
        return f"{self.result.name}_sum" if followed or self.epilogue else self.result.name

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
        """How many products, and summands of the epilogue, an element of the result adds up at most."""
        return self.kind.terms(self.extents) + sum(isinstance(step, Plus) for step in self.epilogue)

    @property
    def said(self) -> Mapping[str, int]:
        """The shape without what is as by default."""
        return self.kind.said(self.shape)

    @property
    def label(self) -> str:
        """Kind, dtype, layout where it is not the default, and shape in one line: `gemm u8s8s32 m=64,n=64,k=64`."""
        layout = "" if self.layout == self.kind.layout else f" {self.layout}"
        shape = ",".join(f"{key}={value}" for key, value in self.said.items())
        epilogue = f" + {self.epilogue_text}" if self.epilogue else ""
        return f"{self.name} {self.dtype}{layout} {shape}{epilogue}"

    @property
    def epilogue_text(self) -> str:
        """The epilogue as `operator` takes it."""
        return ",".join(step.text for step in self.epilogue)

    def prim_func(self) -> Any:
        """The operator as a TIR PrimFunc over plain row-major tensors of `TensorSpec.kernel_shape`."""
        if self.kind.function is not None:
            return self.kind.function
        from tvm import te

        from heron_asp.operators.expressions import finished

        inputs = {
            spec.name: te.placeholder(spec.kernel_shape, spec.dtype.storage, name=spec.name) for spec in self.inputs
        }
        made = self.kind.build(self, *(inputs[spec.name] for spec in self.operands))
        further = {name: inputs[name] for name in self._further}
        return te.create_prim_func([*inputs.values(), finished(self, made, further)])

    def parts(self, most: int) -> Iterator[Part]:
        """The operator cut along the axis that its kind calls stacked; the operator itself where there is none.

        Args:
            most: elements of a part's tensors that have the axis, and of the scratch of its reference, together; a part
                has at least one step of the axis.
        """
        axis, layout = self.kind.stacked, self.kind.layouts[self.layout].tensors
        axes = {**layout, **{name: self._axes_of(one, layout[self.result.name]) for name, one in self._further.items()}}
        extent = self.extents[axis] if axis else 1
        elements = sum(prod(spec.shape) for spec in self.tensors if axis in axes[spec.name])
        step = max(1, most * extent // max(1, elements + self.kind.scratch(self.extents))) if axis else 1
        for start in range(0, extent, step):
            cut = slice(start, min(start + step, extent))
            part = replace(self, shape={**self.shape, axis: cut.stop - cut.start}) if step < extent else self
            every = slice(None)
            yield Part(part, {name: tuple(cut if one == axis else every for one in own) for name, own in axes.items()})

    def reference(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Exact:
        """The result in float64.

        Exact for integers, whose sums stay below 2**53 (`operator` refuses others), so float64 BLAS serves, 40 times
        faster than numpy's integer product; a 32-bit accumulator then wraps, see `wrap`. The rounding of floats is far
        below the tolerance.
        """
        arrays = [inputs[spec.name].astype(np.float64) for spec in self.operands]
        total = self.kind.reference(self.extents, arrays, self.layout)
        if not self.epilogue:
            return total
        accumulator = self.types[ACCUMULATOR]
        found = wrap(total, accumulator).astype(np.int64 if accumulator.is_integer else np.float64)
        tensors = self._broadcast(inputs)
        for step in self.epilogue:
            found = step.apply(found, tensors)
        return found.astype(np.float64)

    def magnitude(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Exact:
        """What bounds the rounding error of any order of summation: the sum of absolute products and summands."""
        arrays = [inputs[spec.name].astype(np.float64) for spec in self.operands]
        if self.kind.magnitude is not None:
            return self.kind.magnitude(self.extents, arrays, self.layout)
        found = self.kind.reference(self.extents, [np.abs(array) for array in arrays], self.layout)
        for summand in self._broadcast(inputs).values():  # floats are never requantized
            found = found + np.abs(summand)
        return found

    def _broadcast(self, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The tensors of the epilogue in float64, or int64 where they are integers, as they broadcast to the result."""
        axes = self.kind.layouts[self.layout].tensors[self.result.name]
        found = {}
        for name, one in self._further.items():
            array = inputs[name].astype(np.int64 if one.dtype.is_integer else np.float64)
            own = self._axes_of(one, axes)
            found[name] = array.reshape([self.extents[axis] if axis in own else 1 for axis in axes])
        return found

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Where the elements of the epilogue's tensors must stay for a result that is defined, or says something.

        Bias and residual with all products stay within the accumulator's integers; scales bring sums of a usual size
        to the size of what they are requantized to, and the zero point leaves room for both signs. Both ends of a
        scale's range are powers of two, which make ties.
        """
        bounds = [dtype.bounds for dtype in self.types]
        if not (self.epilogue and bounds[0] and bounds[1] and bounds[2]):
            return {}
        largest = [max(map(abs, bound)) for bound in bounds if bound]
        summands = sum(isinstance(step, Plus) for step in self.epilogue)
        room = max(1, (largest[2] - 1 - self.terms * largest[0] * largest[1]) // max(1, summands))
        usual = largest[0] * largest[1] * self.terms**0.5 / 4
        room = min(room, int(usual) + 1)
        scale = 2.0 ** -max(0, round(log2(usual / 128)))
        found: dict[str, tuple[float, float]] = {"scale": (scale / 4, scale)}
        found |= dict.fromkeys(("bias", "residual"), (float(-room), float(room)))
        found |= {"zero_point": (0.0, 128.0) if self.result.dtype.name == "u8" else (-64.0, 64.0)}
        return {name: one for name, one in found.items() if name in self._further}


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
    for part in text.split(",") if text.strip() else ():
        key, separator, value = part.strip().partition("=")
        if not separator or not key or not value.strip().isdigit():
            raise HeronError(f"-s {text}: '{part.strip()}' is not key=extent with an extent in digits")
        if key in shape:
            raise HeronError(f"-s {text}: '{key}' is given twice")
        shape[key] = int(value)
    return shape


def operator(
    name: str, shape: Mapping[str, int], dtype: str | None = None, layout: str | None = None, epilogue: str = ""
) -> Operator:
    """Makes an operator instance.

    Args:
        name: an operator family, e.g. `gemm`, or `FILE.py:NAME` for one of the user's own.
        shape: a value for each shape key of the family; optional ones may be left out.
        dtype: activation, weight and accumulator types; by default those of the family, mostly `u8s8s32`.
        layout: how the tensors lie in memory, e.g. `channels-first`; by default the family's first layout.
        epilogue: what is done to each element of the sum before it is stored, e.g. `bias,relu`; see `epilogue`.

    Raises:
        HeronError: unknown operator, key, dtype, layout or epilogue, a missing key, a shape that makes no sense, a
            tensor of more than 2**31 - 1 elements, or sums of integers that may exceed 2**53.
    """
    kind = _kind(name)
    name = kind.name
    if layout is not None and layout not in kind.layouts:
        raise HeronError(f"{name} has no layout '{layout}'", suggestion(layout, kind.layouts))
    steps = parse_epilogue(epilogue)
    if steps and not kind.channel:
        raise HeronError(f"{name} takes no epilogue", "those that multiply by weights do")
    made = Operator(kind, _shape(kind, shape), dtype or kind.dtype, layout or kind.layout, steps)
    for tensor in made.tensors:
        size = prod(tensor.shape)
        if size > LARGEST_TENSOR:
            raise HeronError(f"{name}: tensor {tensor.name} of {size} elements is larger than {LARGEST_TENSOR}")
    _check_types(made)
    return made


def _kind(name: str) -> OperatorKind:
    from heron_asp.operators import KINDS
    from heron_asp.operators.custom import load_kind

    if ":" in name or name.endswith(".py"):
        return load_kind(name)
    if name not in KINDS:
        raise HeronError(f"unknown operator '{name}'", f"{suggestion(name, KINDS)}; one of your own: FILE.py:NAME")
    return KINDS[name]


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
    name, (left, right, result) = f"{made.name} {made.dtype}", made.types
    if result.name == "bf16":  # the result has no type whose arithmetic TVM compiles
        raise HeronError(f"{name}: bf16 cannot accumulate", "accumulate in f32: bf16bf16f32")
    allowed = made.kind.accumulators
    if allowed and result.name not in allowed:
        raise HeronError(f"{name}: accumulates in {' or '.join(allowed)} only", f"e.g. --dtype {made.kind.dtype}")
    if result.is_integer and not (left.is_integer and right.is_integer):
        raise HeronError(f"{name}: an integer cannot accumulate floats", "accumulate in f32")
    if WEIGHT not in made.kind.slots and dtype_triple(made.dtype)[0] != dtype_triple(made.dtype)[1]:
        raise HeronError(f"{name}: both factors are the same tensor, of one type", f"e.g. --dtype {made.kind.dtype}")
    bounds = [dtype.bounds for dtype in (left, right) if dtype.bounds and result.bounds]
    if len(bounds) == 2 and made.terms * prod(max(map(abs, bound)) for bound in bounds) > LARGEST_SUM:
        raise HeronError(f"{name}: sums may exceed 2**53, beyond the exact reference", "use narrower operand types")
    for step in made.epilogue:
        step.check(result)
