"""oneDNN 3.2 on libgomp, called from C through onednn.cpp."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
from peers.native import HERE, Array, Clock, NativeCall, address, aligned, calls_of, compile_shared, take_turn
from peers.workload import Workload

from heron_asp.errors import MissingError

NAME = "oneDNN"
_TRIES = 3  # rounds in which the faster of two primitives is found


def build_onednn(folder: Path) -> Path:
    """Compiles the interface to oneDNN.

    Raises:
        MissingError: oneDNN or its headers are not in this Python's prefix.
    """
    prefix = Path(sys.prefix)
    if not (prefix / "include" / "oneapi" / "dnnl" / "dnnl.hpp").exists():
        raise MissingError(f"no oneDNN in {prefix}", "pip install -e '.[peers]'")
    flags = ["-std=c++17", "-fopenmp", f"-I{prefix / 'include'}", f"-L{prefix / 'lib'}", "-l:libdnnl.so.3"]
    out = folder / "onednn.so"
    return compile_shared(HERE / "onednn.cpp", out, [*flags, f"-Wl,-rpath,{prefix / 'lib'}"], ["g++"])


class OneDnn:
    """oneDNN on a number of threads.

    Args:
        library: what `build_onednn` made.
        clock: times its calls.
        threads: how many it may use.
    """

    name = NAME

    def __init__(self, library: Path, clock: Clock, threads: int) -> None:
        self._clock = clock
        self._library = ctypes.CDLL(str(library))
        size, pointer = ctypes.c_int64, ctypes.c_void_p
        signatures: dict[str, list[Any]] = {
            "onednn_product": [size, size, size, ctypes.c_int],
            "onednn_inner_product": [size, size, size, ctypes.c_int],
            "onednn_batch_product": [size, size, size, size],
            "onednn_convolution": [ctypes.c_int, ctypes.c_int, pointer],
        }
        for function, arguments in signatures.items():
            create = getattr(self._library, function)
            create.restype = pointer
            create.argtypes = [*arguments, pointer, pointer, pointer]
        self._library.onednn_implementation.restype = ctypes.c_char_p
        self._library.onednn_implementation.argtypes = [pointer]
        self._library.onednn_error.restype = ctypes.c_char_p
        self._library.onednn_error.argtypes = []
        self._library.onednn_set_threads(threads)

    def call(self, workload: Workload, source: Array, weights: Array) -> NativeCall:
        """A call of a workload; where oneDNN has two primitives for it, of the faster one.

        Raises:
            MissingError: oneDNN has no primitive for it.
        """
        if workload.windows:
            return self._convolution(workload, source, weights)
        if workload.operator == "batch_matmul":
            return self._made("onednn_batch_product", _sizes(workload, "batch", "m", "n", "k"), source, weights)
        if workload.operator == "gemv":  # y = A x as the row x times the transpose of A
            sizes = (1, *_sizes(workload, "m", "k"), 1)
        else:
            sizes = (*_sizes(workload, "m", "n", "k"), 0)
        shape = tuple(workload.result.values())
        tried = [
            self._made(function, sizes, source, weights, shape)
            for function in ("onednn_product", "onednn_inner_product")
        ]
        calls = [calls_of(one) for one in tried]
        best = [
            min(take_turn(one, number).seconds for _ in range(_TRIES)) for one, number in zip(tried, calls, strict=True)
        ]
        return tried[best.index(min(best))]

    def _convolution(self, workload: Workload, source: Array, weights: Array) -> NativeCall:
        shape = workload.shape
        extents = [shape["n"], shape["ci"], shape["co"], workload.groups]
        for window in workload.windows:
            after = window.after - window.output_padding  # oneDNN takes the result's extent, and a padding that fits
            extents += [window.source, window.kernel, window.result, window.stride, window.dilation]
            extents += [window.before, after]
        said = np.array(extents, np.int64)
        sizes = (len(workload.windows), int(workload.transposed), said.ctypes.data)
        return self._made("onednn_convolution", sizes, source, weights, tuple(workload.result.values()))

    def _made(
        self, function: str, sizes: tuple[int, ...], source: Array, weights: Array, shape: tuple[int, ...] = ()
    ) -> NativeCall:
        result = aligned(np.zeros(shape or (*source.shape[:-1], weights.shape[-1]), np.int32))
        create = getattr(self._library, function)
        handle = create(*sizes, source.ctypes.data, weights.ctypes.data, result.ctypes.data)
        if not handle:
            raise MissingError(f"oneDNN: {self._library.onednn_error().decode()}")
        implementation = self._library.onednn_implementation(handle).decode()
        if function != "onednn_convolution":
            implementation += {"onednn_inner_product": " (inner product)"}.get(function, " (matmul)")
        run = address(self._library.onednn_run)
        return NativeCall(self._clock, NAME, run, handle, result, implementation, (source, weights, self._library))


def _sizes(workload: Workload, *names: str) -> tuple[int, ...]:
    return tuple(workload.shape[name] for name in names)
