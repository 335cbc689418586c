"""Our side: tuned, exported, and called from C through the exported header.

For each function of a library a C function is generated that takes one pointer to a block of 64-bit numbers, the
arguments in their order, and calls it; the last number of the block receives the status.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from peers.native import Array, Clock, NativeCall, address, aligned, compile_shared
from peers.workload import Extents, Workload

from heron_asp.errors import HeronError, InternalError
from heron_asp.library.call import SharedLibrary
from heron_asp.library.interface import Interface
from heron_asp.library.prototype import Prototype
from heron_asp.operators import KINDS, Operator, operator

NAME = "ours"
_SOURCE, _WEIGHTS, _RESULT = 0, 1, 2  # slots of the dtype triple
_DTYPE = "u8s8s32"
_UNKNOWN = 8191
_NEUTRAL = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0}


def operator_of(workload: Workload) -> Operator:
    """The operator that computes a workload.

    Raises:
        HeronError: there is none, or it takes other numbers.
    """
    kind = KINDS.get(workload.operator)
    known = kind.every_key if kind else ()
    shape = {key: value for key, value in workload.shape.items() if key in known or value != _NEUTRAL.get(key)}
    return operator(workload.operator, shape, _DTYPE)


def to_tensor(array: Array, extents: Extents, names: Iterable[str]) -> Array:
    """A workload's array with the axes of an operator's tensor, which has the same axes in another order."""
    mine, theirs = list(extents), list(names)
    if sorted(mine) != sorted(theirs):
        return array  # other names: the same order, or the check of the shapes says so
    return array.transpose([mine.index(name) for name in theirs])


def from_tensor(array: Array, extents: Extents, names: Iterable[str]) -> Array:
    """An operator's result with the axes of the workload's."""
    mine, theirs = list(extents), list(names)
    if sorted(mine) != sorted(theirs):
        return array
    return array.transpose([theirs.index(name) for name in mine])


def caller(function: Prototype) -> str:
    """C code of `void call_<function>(void *)`, which takes the arguments from a block of 64-bit numbers."""
    given = []
    for number, parameter in enumerate(function.parameters):
        kind = re.fullmatch(r"(.*[ *])\w+", parameter)
        assert kind is not None, f"{parameter} is a type and a name"
        through = "(intptr_t)" if "*" in kind[1] else ""
        given.append(f"({kind[1].strip()}){through}said[{number}]")
    arguments = ", ".join(given)
    return f"""void call_{function.name}(void *block)
{{
    int64_t *said = block;
    said[{len(given)}] = {function.name}({arguments});
}}
"""


def build_callers(library: Path, name: str, interfaces: Iterable[Interface], folder: Path) -> Path:
    """Compiles the callers of a library's functions against its header.

    Args:
        library: the folder that `export` wrote.
        name: the library's name.
        interfaces: the functions.
        folder: where to compile.
    """
    source = folder / f"call_{name}.c"
    source.write_text(
        f'#include "{name}.h"\n#include <stdint.h>\n\n' + "\n".join(caller(one.call) for one in interfaces)
    )
    library = library.resolve()
    flags = [f"-I{library}", f"-L{library}", f"-l:lib{name}.so", f"-Wl,-rpath,{library}"]
    return compile_shared(source, folder / f"call_{name}.so", flags)


class Ours:
    """An exported library, ready to be timed.

    Args:
        library: the folder that `export` wrote.
        name: the library's name.
        callers: what `build_callers` made.
        clock: times its calls.
        threads: how many a kernel may use.
    """

    name = NAME

    def __init__(self, library: Path, name: str, callers: Path, clock: Clock, threads: int) -> None:
        self._clock = clock
        self._library = SharedLibrary(library / f"lib{name}.so", name)
        self._callers = ctypes.CDLL(str(callers))
        self._library.set_threads(threads)

    def call(self, workload: Workload, source: Array, weights: Array, implementation: str) -> NativeCall:
        """A call of a workload's operator, its constant operands packed.

        Raises:
            HeronError: there is no such operator, or its tensors are others than the workload's.
            InternalError: the library refuses to pack or to run.
        """
        made = operator_of(workload)
        interface = Interface.of(made)
        tensors, result = self._tensors(made, interface, workload, source, weights)
        block, shape = _block(interface, made.shape, tensors)
        run = address(self._callers[f"call_{interface.function}"])
        call = NativeCall(self._clock, NAME, run, block.ctypes.data, result, implementation, (block, shape, tensors))
        call.run()
        if block[-1] != 0:
            raise InternalError(f"{interface.function}: {self._library.error(int(block[-1]))}")
        return call

    def overhead(self, workload: Workload) -> float:
        """Seconds of a call that the library turns down, having looked for a kernel: what every call costs."""
        made = operator_of(workload)
        interface = Interface.of(made)
        room = aligned(np.zeros(64, np.uint8))
        # A prime that no case has: there is no kernel for it, and nothing is touched.
        unknown = {**made.shape, made.kind.keys[0]: _UNKNOWN}
        block, _kept = _block(interface, unknown, {spec.name: room for spec in made.tensors})
        run = address(self._callers[f"call_{interface.function}"])
        times = [self._clock.seconds(run, block.ctypes.data, 100_000) for _ in range(5)]
        if block[-1] == 0:
            raise InternalError(f"{interface.function} has a kernel for {made.kind.keys[0]}={_UNKNOWN}")
        return min(times)

    def _tensors(
        self, made: Operator, interface: Interface, workload: Workload, source: Array, weights: Array
    ) -> tuple[dict[str, Array], Array]:
        """The operator's tensors by name, constant ones packed, and the result with the workload's axes."""
        roles = {
            _SOURCE: (source, workload.source),
            _WEIGHTS: (weights, workload.weights),
            _RESULT: (np.zeros(tuple(workload.result.values()), np.int32), workload.result),
        }
        axes = made.kind.layouts[made.layout].tensors
        found: dict[str, Array] = {}
        for spec, slot in zip(made.tensors, made.kind.slots, strict=True):
            array, extents = roles[slot]
            plain = aligned(to_tensor(array, extents, axes[spec.name]))
            if plain.shape != spec.shape:
                raise HeronError(
                    f"{made.label}: {spec.name} is {spec.shape}, the suite has {plain.shape} {list(extents)}"
                )
            found[spec.name] = plain
        result = from_tensor(found[made.result.name], workload.result, axes[made.result.name])
        for packed in interface.packed:
            name = packed.argument.name
            into = aligned(np.zeros(self._library.packed_bytes(packed, made.shape), np.uint8))
            status = self._library.pack(packed, made.shape, found[name], into)
            if status != 0:
                raise InternalError(f"{packed.pack.name}: {self._library.error(status)}")
            found[name] = into
        return found, result


def _block(interface: Interface, shape: Extents, tensors: Mapping[str, Array]) -> tuple[Array, Array]:
    """The arguments of a call in their order with room for its status, and the struct with the shape, to be kept."""
    fields = np.array([shape[field.key] for field in interface.fields], np.int32)
    arguments = fields.tolist() if interface.positional else [fields.ctypes.data]
    for argument in interface.passed:
        array = tensors[argument.name]
        arguments.append(array.ctypes.data)
        if argument.is_strided:  # rows are packed one after the other
            arguments.append(array.shape[-1])
    return np.array([*arguments, 0], np.int64), fields
