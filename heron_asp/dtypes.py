"""Element types by the names of the field (u8, s8, s32, bf16, f32) and how TVM and numpy store them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from heron_asp.errors import HeronError
from heron_asp.resources import suggestion


@dataclass(frozen=True)
class DType:
    """An element type.

    Attributes:
        name: the short name, as in `u8s8s32`.
        storage: TVM's type of a stored element. bf16 is stored as uint16: LLVM code generation of TVM 0.27 has no
            bfloat type, so arithmetic on TVM's own bfloat16 never reaches a machine's bf16 instructions.
        bytes: size of a stored element.
        epsilon: unit roundoff; 0 for integers.
        bounds: smallest and largest integer, None for floats.
    """

    name: str
    storage: str
    bytes: int
    epsilon: float = 0.0
    bounds: tuple[int, int] | None = None

    @property
    def is_integer(self) -> bool:
        """Whether arithmetic on it is exact."""
        return self.bounds is not None

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type that has this type's arithmetic."""
        if self.name == "bf16":
            import ml_dtypes

            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(self.storage)

    def stored(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array as TVM stores it: the same bytes."""
        return array.view(self.storage) if array.dtype != np.dtype(self.storage) else array


DTYPES = {
    dtype.name: dtype
    for dtype in (
        DType("u8", "uint8", 1, bounds=(0, 255)),
        DType("s8", "int8", 1, bounds=(-128, 127)),
        DType("s16", "int16", 2, bounds=(-(2**15), 2**15 - 1)),
        DType("s32", "int32", 4, bounds=(-(2**31), 2**31 - 1)),
        DType("f16", "float16", 2, epsilon=2.0**-11),
        DType("bf16", "uint16", 2, epsilon=2.0**-8),
        DType("f32", "float32", 4, epsilon=2.0**-24),
    )
}


def twins() -> Iterator[tuple[str, str, int]]:
    """Integer types of equal size, each pair with the offset that makes the values of the first those of the second."""
    for one, other in permutations(DTYPES.values(), 2):
        if one.bounds and other.bounds and one.bytes == other.bytes:
            yield one.name, other.name, other.bounds[0] - one.bounds[0]


def dtype_triple(text: str) -> tuple[DType, DType, DType]:
    """Parses a type triple such as `u8s8s32`: activation, weight, accumulator.

    Raises:
        HeronError: the text is not three known types.
    """

    def parts(rest: str) -> list[list[str]]:
        if not rest:
            return [[]]
        return [[name, *more] for name in DTYPES if rest.startswith(name) for more in parts(rest[len(name) :])]

    for names in parts(text):
        if len(names) == 3:
            first, second, third = (DTYPES[name] for name in names)
            return first, second, third
    raise HeronError(
        f"--dtype {text}: not three element types (activation, weight, accumulator)",
        suggestion(text, ["u8s8s32", "bf16bf16f32", "f16f16f32", "f32f32f32"])
        + f"; element types: {', '.join(DTYPES)}",
    )
