"""Parts of tensor expressions that operators share."""

from __future__ import annotations

from typing import Any

from heron_asp.dtypes import DType

ACTIVATION, WEIGHT, ACCUMULATOR = 0, 1, 2  # places in a type triple


def widen(element: Any, dtype: DType, accumulator: DType) -> Any:
    """An element as the accumulator's type: what every intrinsic that multiplies narrow elements does first."""
    from tvm import tirx

    if dtype.name == "bf16":  # the upper half of a float32
        bits = tirx.shift_left(tirx.Cast("uint32", element), tirx.const(16, "uint32"))
        return tirx.reinterpret("float32", bits).astype(accumulator.storage)
    return element.astype(accumulator.storage)
