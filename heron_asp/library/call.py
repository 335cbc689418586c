"""Calls an exported library from Python, as its users do: through ctypes, on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.errors import InternalError
from heron_asp.library.fields import Field
from heron_asp.library.interface import Argument, Interface, Packed
from heron_asp.library.prototype import CTYPES
from heron_asp.operators import Operator
from heron_asp.schedule.replay import ALIGNMENT

Array = npt.NDArray[Any]
_GARBAGE = 0x5A


def aligned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """An array full of garbage that begins where the library wants it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.full(size + ALIGNMENT, _GARBAGE, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def spread(array: Array, gap: int) -> Array:
    """A copy whose rows have `gap` elements of garbage between them."""
    row = array.shape[-1:]
    memory = aligned((*array.shape[:-1], *(extent + gap for extent in row)), array.dtype)
    view = memory[..., : row[0]] if gap else memory
    view[...] = array
    return view


def gaps(array: Array) -> Array:
    """The bytes between the rows of a spread array."""
    row = array.shape[-1]
    wide = (*array.shape[:-1], array.strides[-2] // array.itemsize)
    return np.lib.stride_tricks.as_strided(array, wide)[..., row:].copy().view(np.uint8)


class SharedLibrary:
    """A loaded library.

    Args:
        path: the `.so`.
        name: the library's name.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._library = ctypes.CDLL(str(path.resolve()))
        self._error = self._library[f"{name}_error"]
        self._error.restype = ctypes.c_char_p

    def error(self, status: int) -> str:
        """A status in words."""
        said: bytes = self._error(status)
        return said.decode()

    def set_threads(self, threads: int) -> int:
        """Sets how many threads a kernel may use; returns a status."""
        return int(self._library[f"{self.name}_set_threads"](threads))

    def threads(self) -> int:
        """How many threads a kernel may use."""
        return int(self._library[f"{self.name}_threads"]())

    def packed_bytes(self, packed: Packed, shape: Mapping[str, int]) -> int:
        """Bytes of a packed operand, 0 if the library has no kernel for the extents."""
        function = self._library[packed.bytes.name]
        function.restype = ctypes.c_size_t
        return int(function(*_shape(packed.interface, packed.fields, shape)))

    def pack(self, packed: Packed, shape: Mapping[str, int], plain: Array | None, into: Array | None) -> int:
        """Packs an operand; returns a status."""
        arguments = [*_shape(packed.interface, packed.fields, shape), _pointer(plain)]
        if packed.argument.leading:
            arguments.append(_leading(plain))
        return int(self._library[packed.pack.name](*arguments, _pointer(into)))

    def call(self, interface: Interface, shape: Mapping[str, int], tensors: Mapping[str, Array | None]) -> int:
        """Calls an operator; returns a status.

        Args:
            interface: the operator's functions.
            shape: the shape keys; what is left out is 0 where the functions take a struct.
            tensors: by tensor name; constant ones packed; single numbers as arrays of one element.
        """
        arguments = _shape(interface, interface.fields, shape)
        for argument in interface.passed:
            tensor = tensors[argument.name]
            arguments.append(_number(argument, tensor) if argument.by_value else _pointer(tensor))
            if argument.is_strided:
                arguments.append(_leading(tensor))
        return int(self._library[interface.function](*arguments))

    def compute(self, interface: Interface, operator: Operator, inputs: Mapping[str, Array], gap: int = 0) -> Array:
        """Packs what is to be packed, calls an operator and returns its result.

        Args:
            interface: the operator's functions.
            operator: the operator.
            inputs: by tensor name, in the numpy type of the element.
            gap: elements between the rows of tensors that have leading dimensions.

        Raises:
            InternalError: a status that is not 0, or something was written between rows.
        """
        tensors: dict[str, Array | None] = {}
        packings = {packed.argument.name: packed for packed in interface.packed}
        specs = {spec.name: spec for spec in operator.tensors}
        for argument in interface.passed:
            spec = specs[argument.name]
            apart = gap if argument.leading else 0
            if argument.result:
                tensors[spec.name] = result = spread(aligned(spec.shape, spec.dtype.storage), apart)
                continue
            plain = spread(spec.dtype.stored(inputs[spec.name]), apart)
            packed = packings.get(spec.name)
            if packed is not None:
                into = aligned((self.packed_bytes(packed, operator.shape),), np.uint8)
                self._succeed(packed.pack.name, self.pack(packed, operator.shape, plain, into))
                tensors[spec.name] = into
            else:
                tensors[spec.name] = plain
        self._succeed(interface.function, self.call(interface, operator.shape, tensors))
        if gap and interface.result.leading and (gaps(result) != _GARBAGE).any():
            raise InternalError(f"{interface.function} wrote between the rows of {interface.result.name}")
        return np.ascontiguousarray(result).view(specs[interface.result.name].dtype.numpy)

    def _succeed(self, function: str, status: int) -> None:
        if status != 0:
            raise InternalError(f"{function}: {self.error(status)}")


def _shape(interface: Interface, fields: Sequence[Field], shape: Mapping[str, int]) -> list[Any]:
    """The shape as arguments of a call: a struct of integers lies in memory as an array of them."""
    if interface.positional:
        return [shape[field.key] for field in fields]
    values = [shape.get(field.key, 0) for field in interface.fields]
    return [(ctypes.c_int * len(values))(*values)] if fields else []


def _number(argument: Argument, array: Array | None) -> Any:
    """A single number as C takes it: of f16 and bf16 the bits."""
    assert array is not None
    c_type: Any = getattr(ctypes, CTYPES[argument.dtype.name])
    return c_type.from_buffer_copy(np.ascontiguousarray(array))


def _pointer(array: Array | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


def _leading(array: Array | None) -> int:
    return 0 if array is None else array.strides[-2] // array.itemsize
