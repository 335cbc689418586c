"""What candidates are checked on: random and adversarial inputs, exact references, the tolerance of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.operators import Operator, TensorSpec
from heron_asp.operators.operator import wrap

Array = npt.NDArray[Any]
_Range = tuple[float, float]
_CASES = 3  # that `_inputs` makes
_PIECE = 2**22  # elements that are drawn, computed or compared at once; in float64 32 MiB
_SMALLEST_NORMAL = 2.0**-126  # of float32 and bfloat16; instructions may flush what is below


@dataclass(frozen=True)
class Case:
    """Inputs and what a kernel must make of them.

    Attributes:
        name: what is particular about the inputs.
        inputs: by tensor name, in the numpy type of the element.
        expected: the exact result; wrapped for integers, float64 otherwise.
        tolerance: largest allowed error of each element; None where the result must be equal.
    """

    name: str
    inputs: dict[str, Array]
    expected: Array
    tolerance: Array | None

    def error(self, result: Array) -> str | None:
        """What is wrong with a result, in one sentence; None if nothing is."""
        count, first = 0, None
        for place in _pieces(result.shape):
            wrong = self._wrong(result, place)
            if first is None and wrong.any():
                inside = np.unravel_index(int(wrong.argmax()), wrong.shape)
                first = tuple(int(at) + (cut.start or 0) for at, cut in zip(inside, place, strict=True))
            count += int(np.count_nonzero(wrong))
        if first is None:
            return None
        return (
            f"{count} of {result.size} elements are wrong on {self.name} inputs, "
            f"the first at {first}: {result[first]} instead of {self.expected[first]}"
        )

    def _wrong(self, result: Array, place: tuple[slice, ...]) -> npt.NDArray[np.bool_]:
        expected = self.expected[place]
        if self.tolerance is None:
            unequal: npt.NDArray[np.bool_] = result[place] != expected
            return unequal
        with np.errstate(invalid="ignore"):
            return ~(np.abs(result[place].astype(np.float64) - expected) <= self.tolerance[place])


def _pieces(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """A tensor's elements, so many at once: cut along its first axis with more than one element."""
    axis = next((at for at, extent in enumerate(shape) if extent > 1), len(shape) - 1)
    step = max(1, _PIECE * shape[axis] // prod(shape))
    for start in range(0, shape[axis], step):
        cut = slice(start, min(start + step, shape[axis]))
        yield tuple(cut if at == axis else slice(None) for at in range(len(shape)))


def bytes_needed(operator: Operator) -> int:
    """About how much memory making the cases and checking a kernel on them takes at most, in bytes.

    Kept are the inputs, as arrays and as a kernel takes them, and the results with their tolerances. Beside them there
    are the numbers in float64 of a part of one case; or, while a kernel is checked, its result.
    """
    result, outputs = operator.result, prod(operator.result.shape)
    inputs = sum(prod(spec.shape) * spec.dtype.bytes for spec in operator.inputs)
    kept = _CASES * (2 * inputs + outputs * (result.dtype.bytes if result.dtype.is_integer else 16))
    part = next(iter(operator.parts(_PIECE))).operator
    making = 16 * sum(prod(spec.shape) for spec in part.inputs) + 24 * prod(part.result.shape)
    return kept + max(making + 8 * part.kind.scratch(part.extents), outputs * result.dtype.bytes)


def bytes_compared(operator: Operator) -> int:
    """How many bytes of results are compared to check a kernel."""
    return _CASES * prod(operator.result.shape) * operator.result.dtype.bytes


def cases(operator: Operator, seed: int = 0, most: int = _CASES) -> list[Case]:
    """The inputs that every candidate of an operator is checked on, or the first of them."""
    generator = np.random.default_rng(seed)
    return [case_of(operator, name, inputs) for name, inputs in islice(_inputs(operator, generator), most)]


def _inputs(operator: Operator, generator: np.random.Generator) -> Iterator[tuple[str, dict[str, Array]]]:
    fixed, ranges = operator.constants, operator.ranges

    def drawn(draw: Callable[[TensorSpec, np.random.Generator, _Range | None], Array]) -> dict[str, Array]:
        return {spec.name: draw(spec, generator, ranges.get(spec.name)) for spec in operator.inputs} | fixed

    yield "random", drawn(_random)
    yield "extreme", drawn(_extreme)
    single = drawn(_random)
    for spec in operator.inputs:
        if spec.name not in operator.constant and len(spec.shape) > 1:  # all rows but the last are zero
            single[spec.name][..., : spec.shape[-2] - 1, :] = 0
    yield "single-row", single


def _filled(spec: TensorSpec, draw: Callable[[int], Array]) -> Array:
    """A tensor of numbers that are drawn some at a time, since they are drawn wider than they are kept."""
    made = np.empty(prod(spec.shape), spec.dtype.numpy)
    for start in range(0, made.size, _PIECE):
        piece = made[start : start + _PIECE]
        piece[...] = draw(piece.size).astype(made.dtype)
    return made.reshape(spec.shape)


def _random(spec: TensorSpec, generator: np.random.Generator, within: _Range | None) -> Array:
    if spec.dtype.bounds is not None:
        low, high = map(int, within or spec.dtype.bounds)
        return _filled(spec, lambda number: generator.integers(low, high + 1, number))
    if within:
        return _filled(spec, lambda number: generator.uniform(*within, number))
    return _filled(spec, generator.standard_normal)


def _extreme(spec: TensorSpec, generator: np.random.Generator, within: _Range | None) -> Array:
    """Smallest and largest values and zero: what saturating or sign-confusing arithmetic gets wrong."""
    if spec.dtype.bounds is not None:
        low, high = map(int, within or spec.dtype.bounds)
        choices = np.array([low, high, high, 0 if low else low], dtype=np.int64)
        return _filled(spec, lambda number: choices[generator.integers(0, len(choices), number)])
    values = np.array([0.0, -1.0, 1.0, 2.0**-130, -(2.0**-130), 2.0**12, -(2.0**12)])
    if within is not None:
        values = np.array(within)
    elif spec.dtype.name == "f16":
        values = np.array([0.0, -1.0, 1.0, 2.0**-20, -(2.0**-20), 8.0, -8.0])
    return _filled(spec, lambda number: values[generator.integers(0, len(values), number)])


def case_of(operator: Operator, name: str, inputs: dict[str, Array]) -> Case:
    """What an operator must make of inputs, given by tensor name in the numpy type of the element."""
    spec = operator.result
    exactly = spec.dtype.is_integer
    expected = np.empty(spec.shape, spec.dtype.numpy if exactly else np.float64)
    tolerance = None if exactly else np.empty(spec.shape)
    least = 0.0 if exactly else _least_tolerance(operator, inputs)
    for part in operator.parts(_PIECE):
        own = {name: array[part.places[name]] for name, array in inputs.items()}
        exact = part.operator.reference(own)
        expected[part.places[spec.name]] = wrap(exact, spec.dtype)
        if tolerance is not None:
            rounding = operator.terms * spec.dtype.epsilon * part.operator.magnitude(own)
            tolerance[part.places[spec.name]] = rounding + spec.dtype.epsilon * np.abs(exact) + least
    return Case(name, inputs, expected, tolerance)


def _least_tolerance(operator: Operator, inputs: Mapping[str, Array]) -> float:
    """What every element may be off by, since instructions may flush what is below the smallest normal number."""
    largest = max(
        float(np.abs(array[place].astype(np.float64)).max())
        for array in inputs.values()
        for place in _pieces(array.shape)
    )
    floor = 2.0**-24 if operator.result.dtype.name == "f16" else _SMALLEST_NORMAL
    return 2 * operator.terms * floor * max(1.0, largest)
