"""Global memory whose bounds are guarded: pages before and behind each buffer that no access survives."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from heron_asp.backends.cuda.program import Buffer, Use
from heron_asp.errors import InternalError

ALIGNMENT = 32  # of a buffer that ends at its guard page: what vectors and fragments ask for
_PAGE = mmap.PAGESIZE
_NO_ACCESS = 0  # PROT_NONE, which Python does not name
_FAILED = ctypes.c_void_p(-1).value
_FLOATS = ("float16", "bfloat16", "float32", "float64")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def dtype_of(storage: str) -> np.dtype[Any]:
    """NumPy's type for TVM's name of one."""
    return np.dtype(bfloat16 if storage == "bfloat16" else storage)


def poison(storage: str) -> int:
    """The byte that fills what was not written: NaN for floats, the least number or nearly so for integers."""
    return 0xFF if storage in _FLOATS else 0x80


def unwritten(array: np.ndarray) -> np.ndarray:
    """Where an output still has the poison it began with; an int8 of -128 that was written counts as poison."""
    raw = np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.dtype.itemsize)
    return np.asarray((raw == poison(array.dtype.name)).all(axis=-1))


@dataclass
class Guarded:
    """A buffer between two guard pages, in memory that a forked child shares.

    Args:
        buffer: what it is.
        contents: of an input; None fills it with poison.
        at_end: it touches the guard page behind it, or else the one before.
    """

    buffer: Buffer
    contents: np.ndarray | None
    at_end: bool

    def __post_init__(self) -> None:
        size = self.buffer.nbytes
        self._body = max(_PAGE, -(-size // _PAGE) * _PAGE)
        base = _libc.mmap(None, self._body + 2 * _PAGE, _NO_ACCESS, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, 0)
        if base == _FAILED:
            raise InternalError(f"no memory for the buffer {self.buffer.name}: {size} bytes")
        self._base = int(base)
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)
        aligned = -(-size // ALIGNMENT) * ALIGNMENT
        self._offset = self._body - aligned if self.at_end else 0
        self.address = self._base + _PAGE + self._offset
        self._bytes()[:] = poison(self.buffer.storage)
        if self.contents is not None:
            self.array()[...] = self.contents
            self._protect(mmap.PROT_READ)

    def array(self) -> np.ndarray:
        """What it holds, without a copy: not to be used once it is released."""
        part = self._bytes()[self._offset : self._offset + self.buffer.nbytes]
        return part.view(dtype_of(self.buffer.storage)).reshape(self.buffer.shape)

    def spilled(self) -> int | None:
        """The offset of the first byte out of bounds that was written, None if there is none."""
        changed = self._bytes() != poison(self.buffer.storage)
        changed[self._offset : self._offset + self.buffer.nbytes] = False
        return int(changed.argmax()) - self._offset if changed.any() else None

    def describe(self, address: int) -> str | None:
        """What an address is to this buffer; None if it is far away."""
        offset, size = address - self.address, self.buffer.nbytes
        if not self._base <= address < self._base + self._body + 2 * _PAGE:
            return None
        if 0 <= offset < size:
            return f"a write to the input {self.buffer.name}"
        return f"byte {offset} of the buffer {self.buffer.name}, which has {size} bytes"

    def release(self) -> None:
        """Gives the memory back."""
        _libc.munmap(self._base, self._body + 2 * _PAGE)

    def _bytes(self) -> np.ndarray:
        view = (ctypes.c_uint8 * self._body).from_address(self._base + _PAGE)
        return np.frombuffer(memoryview(view), np.uint8)

    def _protect(self, protection: int) -> None:
        if _libc.mprotect(self._base + _PAGE, self._body, protection):
            raise InternalError(f"mprotect of the buffer {self.buffer.name} failed")


def guard(buffers: tuple[Buffer, ...], arrays: dict[str, np.ndarray], at_end: bool) -> dict[str, Guarded]:
    """All buffers of a program, inputs with their contents, outputs and scratch with poison."""
    return {
        buffer.name: Guarded(buffer, arrays[buffer.name] if buffer.use is Use.INPUT else None, at_end)
        for buffer in buffers
    }
