"""Runs a program on the CPU, thread by thread, and says where it does what no device would forgive."""

from __future__ import annotations

import ctypes
import re
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from heron_asp.backends.cuda.emulator.build import library
from heron_asp.backends.cuda.emulator.error import EmulationError, UnsupportedError
from heron_asp.backends.cuda.emulator.memory import Guarded, dtype_of, guard
from heron_asp.backends.cuda.emulator.translate import translate
from heron_asp.backends.cuda.program import Kernel, Program, Use
from heron_asp.child import Outcome, Report, run_in_child
from heron_asp.errors import InternalError

_MESSAGE_BYTES = 1024
_GRACE = 10.0  # seconds that a run may take longer than its clock, to load and to say so
_MOST_THREADS = 1024
_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_BLOCK = (1024, 1024, 64)


class Order(IntEnum):
    """In which order the threads of a block take turns."""

    FORWARD = 0
    REVERSE = 1
    RANDOM = 2


class Copies(IntEnum):
    """When an asynchronous copy is done: a device may do it at any time between."""

    LATE = 0  # where it is waited for
    EARLY = 1  # at once


def schedules() -> Iterator[tuple[Order, Copies]]:
    """The four combinations that a correct program gets through; together they find what one alone may not."""
    for order in (Order.FORWARD, Order.REVERSE):
        for copies in Copies:
            yield order, copies


@dataclass(frozen=True)
class Emulated:
    """A compiled program.

    Attributes:
        program: what was compiled.
        library: the bytes of its shared library.
    """

    program: Program
    library: bytes = field(repr=False)

    def run(
        self,
        arrays: Mapping[str, np.ndarray],
        order: Order = Order.FORWARD,
        copies: Copies = Copies.LATE,
        timeout: float = 60.0,
        sample_blocks: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs all kernels, one after the other, in a child process.

        Late copies put each buffer before a guard page, early ones behind one, so that both together find accesses
        that are out of bounds on either side.

        Args:
            arrays: an array for each input, of its shape and type (float16, ml_dtypes' bfloat16, ...).
            order: of the threads.
            copies: when asynchronous copies are done.
            timeout: seconds for all kernels together.
            sample_blocks: how many blocks of the last kernel run: the first, the last and random ones. What the others
                would have written stays poison (`unwritten`). None runs all.

        Returns:
            the outputs by their names. What was not written is NaN, or the least integer.

        Raises:
            EmulationError: the program is wrong; the message names kernel, block and thread.
        """
        guarded = guard(self.program.buffers, self._checked(arrays), copies is Copies.LATE)
        try:
            outcome = run_in_child(self._work(guarded, order, copies, timeout, sample_blocks), [timeout + _GRACE])
            _raise_failure(outcome, guarded, timeout)
            for one in guarded.values():
                if (offset := one.spilled()) is not None:
                    raise EmulationError(f"{self._names()}: a write out of bounds, {_byte(one, offset)}")
            return {name: one.array().copy() for name, one in guarded.items() if one.buffer.use is Use.OUTPUT}
        finally:
            for one in guarded.values():
                one.release()

    def _names(self) -> str:
        return "kernel " + ", ".join(kernel.name for kernel in self.program.kernels)

    def _checked(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        inputs = {buffer.name: buffer for buffer in self.program.buffers if buffer.use is Use.INPUT}
        if set(arrays) != set(inputs):
            raise InternalError(f"arrays for {sorted(arrays)}, inputs are {sorted(inputs)}")
        for name, buffer in inputs.items():
            array = arrays[name]
            if array.shape != buffer.shape or array.dtype != dtype_of(buffer.storage):
                raise InternalError(
                    f"input {name}: {array.dtype} {array.shape} in place of {buffer.storage} {buffer.shape}"
                )
        return dict(arrays)

    def _work(
        self, guarded: Mapping[str, Guarded], order: Order, copies: Copies, timeout: float, sample: int | None
    ) -> Callable[[Report], None]:
        def work(report: Report) -> None:
            with tempfile.NamedTemporaryFile(prefix="heron_asp_", suffix=".so") as file:
                file.write(self.library)
                file.flush()
                loaded = ctypes.CDLL(file.name)
            signal.setitimer(signal.ITIMER_REAL, timeout)
            for kernel in self.program.kernels:
                blocks = _sampled(kernel, sample) if kernel is self.program.kernels[-1] else None
                message = _launch(loaded, kernel, guarded, order, copies, blocks)
                if message:
                    report("failure", message)
                    return

        return work


def compile_program(program: Program, folder: Path | None = None) -> Emulated:
    """Compiles a program for the CPU.

    Args:
        program: its source is CUDA C++ as TVM prints it.
        folder: where what is compiled is kept, by its contents, to be taken again; if left out, only what all programs
            share is kept, beside temporary files.

    Raises:
        MissingError: there is no C++ compiler.
        UnsupportedError: the source has something that the emulator does not know.
        EmulationError: a launch is impossible.
    """
    translation = translate(program.source)
    for kernel in program.kernels:
        _check_launch(program, kernel, translation.parameters, translation.most_threads)
    return Emulated(program, library(translation.code, folder))


def verify(
    emulated: Emulated,
    arrays: Mapping[str, np.ndarray],
    judge: Callable[[dict[str, np.ndarray]], str],
    timeout: float = 60.0,
    sample_blocks: int | None = None,
) -> None:
    """Runs a program under the four `schedules`.

    Args:
        emulated: the program.
        arrays: its inputs.
        judge: says what is wrong with the outputs; nothing if they are right.
        timeout: seconds for each run.
        sample_blocks: as for `Emulated.run`; the judge then looks only at what is not `unwritten`.

    Raises:
        EmulationError: a run failed, or its outputs are wrong.
    """
    for order, copies in schedules():
        outputs = emulated.run(arrays, order, copies, timeout, sample_blocks)
        if wrong := judge(outputs):
            raise EmulationError(
                f"wrong results with threads in {order.name.lower()} order and {copies.name.lower()} copies: {wrong}"
            )


def _check_launch(
    program: Program, kernel: Kernel, parameters: Mapping[str, int], most_threads: Mapping[str, int]
) -> None:
    where = f"kernel {kernel.name}"
    if kernel.name not in parameters:
        raise UnsupportedError(f"the source has no kernel {kernel.name}")
    if len(kernel.arguments) != parameters[kernel.name]:
        raise EmulationError(f"{where} takes {parameters[kernel.name]} pointers, not {len(kernel.arguments)}")
    missing = set(kernel.arguments) - {buffer.name for buffer in program.buffers}
    if missing:
        raise EmulationError(f"{where}: there is no buffer {', '.join(sorted(missing))}")
    if kernel.threads > (most := most_threads.get(kernel.name, _MOST_THREADS)):
        raise EmulationError(f"{where} is launched with {kernel.threads} threads a block, and takes {most}")
    for extents, limits in ((kernel.grid, _MOST_BLOCKS), (kernel.block, _MOST_BLOCK)):
        if any(not 1 <= extent <= limit for extent, limit in zip(extents, limits, strict=True)):
            raise EmulationError(f"{where} is launched with {extents}, and the limits are {limits}")


def _sampled(kernel: Kernel, sample: int | None) -> Sequence[int] | None:
    """The numbers of the blocks that run, x fastest; None for all."""
    count = prod(kernel.grid)
    if sample is None or sample >= count:
        return None
    between = np.random.default_rng(count).permutation(count - 2)[: max(0, sample - 2)] + 1
    return sorted([*[0, count - 1][:sample], *(int(number) for number in between)])


def _launch(
    loaded: ctypes.CDLL,
    kernel: Kernel,
    guarded: Mapping[str, Guarded],
    order: Order,
    copies: Copies,
    blocks: Sequence[int] | None,
) -> str:
    """Runs a kernel in this process; the reason if it failed."""
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    addresses = [guarded[name].address for name in kernel.arguments]
    head = (
        kernel.name.encode(),
        (ctypes.c_int * 3)(*kernel.grid),
        (ctypes.c_int * 3)(*kernel.block),
        ctypes.c_size_t(kernel.dynamic_shared),
        (ctypes.c_void_p * max(1, len(addresses)))(*addresses),
        int(order),
        int(copies),
        message,
        ctypes.c_size_t(_MESSAGE_BYTES),
    )
    if blocks is None:
        failed = loaded.heron_emulate(*head)
    else:
        failed = loaded.heron_emulate_blocks(*head, (ctypes.c_longlong * len(blocks))(*blocks), len(blocks))
    return message.value.decode(errors="replace") if failed else ""


def _raise_failure(outcome: Outcome, guarded: Mapping[str, Guarded], timeout: float) -> None:
    failure: Any = outcome.value("failure")
    if failure:
        raise EmulationError(_named(failure, guarded, timeout))
    if error := outcome.value("error"):
        raise InternalError(f"the emulator failed: {error}")
    if outcome.timed_out:
        raise EmulationError(f"the program was not at its end after {timeout:g} seconds")
    if outcome.signal:
        raise EmulationError(f"the emulator was ended by signal {outcome.signal}: {outcome.stderr.strip()[-300:]}")


def _named(message: str, guarded: Mapping[str, Guarded], timeout: float) -> str:
    """A failure with the name of the buffer that an address belongs to."""
    message = message.replace("when time was up", f"after {timeout:g} seconds")
    match = re.search(r"out of bounds, address=(0x[0-9a-f]+|\(nil\))", message)
    if match is None:
        return message
    address = 0 if match[1] == "(nil)" else int(match[1], 16)
    for one in guarded.values():
        if text := one.describe(address):
            return message.replace(match[0], text if text.startswith("a write") else f"out of bounds, {text}")
    return message.replace(match[0], f"out of bounds, address {address:#x} is in no buffer")


def _byte(one: Guarded, offset: int) -> str:
    return f"byte {offset} of the buffer {one.buffer.name}, which has {one.buffer.nbytes} bytes"
