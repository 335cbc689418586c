"""What candidates are checked on: random and adversarial inputs, exact references, the tolerance of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.dtypes import DType
from heron_asp.operators import Operator, TensorSpec
from heron_asp.operators.operator import wrap

Array = npt.NDArray[Any]
_Range = tuple[float, float]
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
        if self.tolerance is None:
            wrong = result != self.expected
        else:
            with np.errstate(invalid="ignore"):
                wrong = ~(np.abs(result.astype(np.float64) - self.expected) <= self.tolerance)
        if not wrong.any():
            return None
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        return (
            f"{int(wrong.sum())} of {wrong.size} elements are wrong on {self.name} inputs, "
            f"the first at {where}: {result[where]} instead of {self.expected[where]}"
        )


def bytes_needed(operator: Operator) -> int:
    """About how much memory making the cases and checking a kernel on them takes at most, in bytes."""
    inputs = sum(prod(spec.shape) for spec in operator.inputs)
    outputs = prod(operator.result.shape)
    kept = 3 * (inputs * max(spec.dtype.bytes for spec in operator.inputs) + outputs * 16)
    return kept + 16 * inputs + 24 * outputs + 8 * operator.kind.scratch(operator.extents)


def cases(operator: Operator, seed: int = 0) -> list[Case]:
    """The inputs that every candidate of an operator is checked on."""
    generator = np.random.default_rng(seed)
    return [case_of(operator, name, inputs) for name, inputs in _inputs(operator, generator)]


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


def _random(spec: TensorSpec, generator: np.random.Generator, within: _Range | None) -> Array:
    if spec.dtype.bounds is not None:
        low, high = map(int, within or spec.dtype.bounds)
        return generator.integers(low, high + 1, spec.shape).astype(spec.dtype.numpy)
    drawn = generator.uniform(*within, spec.shape) if within else generator.standard_normal(spec.shape)
    return drawn.astype(spec.dtype.numpy)


def _extreme(spec: TensorSpec, generator: np.random.Generator, within: _Range | None) -> Array:
    """Smallest and largest values and zero: what saturating or sign-confusing arithmetic gets wrong."""
    if spec.dtype.bounds is not None:
        low, high = map(int, within or spec.dtype.bounds)
        choices = np.array([low, high, high, 0 if low else low], dtype=np.int64)
        return choices[generator.integers(0, len(choices), spec.shape)].astype(spec.dtype.numpy)
    values = np.array([0.0, -1.0, 1.0, 2.0**-130, -(2.0**-130), 2.0**12, -(2.0**12)])
    if within is not None:
        values = np.array(within)
    elif spec.dtype.name == "f16":
        values = np.array([0.0, -1.0, 1.0, 2.0**-20, -(2.0**-20), 8.0, -8.0])
    return values[generator.integers(0, len(values), spec.shape)].astype(spec.dtype.numpy)


def case_of(operator: Operator, name: str, inputs: dict[str, Array]) -> Case:
    """What an operator must make of inputs, given by tensor name in the numpy type of the element."""
    exact = operator.reference(inputs)
    result: DType = operator.result.dtype
    if result.is_integer:
        return Case(name, inputs, wrap(exact, result), None)
    magnitude = operator.magnitude(inputs)
    tolerance = operator.terms * result.epsilon * magnitude + result.epsilon * np.abs(exact)
    largest = max(float(np.abs(array.astype(np.float64)).max()) for array in inputs.values())
    floor = 2.0**-24 if result.name == "f16" else _SMALLEST_NORMAL
    return Case(name, inputs, exact, tolerance + 2 * operator.terms * floor * max(1.0, largest))
