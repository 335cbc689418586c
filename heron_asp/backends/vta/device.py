"""The child process of `driver`: loads a VTA library, runs one program, writes the memory back.

Usage: python -m heron_asp.backends.vta.device FOLDER, where FOLDER holds `request`, `program` and `memory`.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heron_asp.backends.vta.config import INSTRUCTION_BYTES, Configuration
from heron_asp.backends.vta.driver import alignment, relocate
from heron_asp.backends.vta.encode import decode_program, encode_program

_CACHED = 1
_POINTER, _PHYSICAL = ctypes.c_void_p, ctypes.c_uint32
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "VTADeviceAlloc": (_POINTER, []),
    "VTADeviceFree": (None, [_POINTER]),
    "VTADeviceRun": (ctypes.c_int, [_POINTER, _PHYSICAL, ctypes.c_uint32, ctypes.c_uint32]),
    "VTAMemAlloc": (_POINTER, [ctypes.c_size_t, ctypes.c_int]),
    "VTAMemFree": (None, [_POINTER]),
    "VTAMemGetPhyAddr": (_PHYSICAL, [_POINTER]),
    "VTAMemCopyFromHost": (None, [_POINTER, _POINTER, ctypes.c_size_t]),
    "VTAMemCopyToHost": (None, [_POINTER, _POINTER, ctypes.c_size_t]),
    "VTAFlushCache": (None, [_POINTER, _PHYSICAL, ctypes.c_int]),
    "VTAInvalidateCache": (None, [_POINTER, _PHYSICAL, ctypes.c_int]),
}


class DriverError(Exception):
    """The library cannot be used or reports a failure."""


class Library:
    """VTA's driver functions (vta/driver.h) of a shared library."""

    def __init__(self, paths: list[str]) -> None:
        try:
            for path in paths:
                self._library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise DriverError(f"{path} cannot be loaded: {error}") from error
        for name, (result, arguments) in _SIGNATURES.items():
            try:
                function = getattr(self._library, name)
            except AttributeError as error:
                raise DriverError(f"{paths[-1]} has no function {name}: it is no VTA driver library") from error
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def call(self, name: str, *arguments: object) -> int:
        """Calls a driver function; pointers and numbers are integers."""
        return getattr(self, name)(*arguments) or 0

    @contextmanager
    def buffer(self, size: int) -> Iterator[tuple[int, int]]:
        """A buffer that the device sees: its pointer and its physical address."""
        pointer = self.call("VTAMemAlloc", size, _CACHED)
        if not pointer:
            raise DriverError(f"VTAMemAlloc found no {size} bytes")
        try:
            yield pointer, self.call("VTAMemGetPhyAddr", pointer)
        finally:
            self.call("VTAMemFree", pointer)

    def write(self, pointer: int, physical: int, data: bytes) -> None:
        """Copies to the device's memory and makes it visible."""
        source = ctypes.create_string_buffer(data, len(data))
        self.call("VTAMemCopyFromHost", pointer, ctypes.cast(source, _POINTER), len(data))
        self.call("VTAFlushCache", pointer, physical, len(data))

    def read(self, pointer: int, physical: int, size: int) -> bytes:
        """Copies from the device's memory."""
        data = ctypes.create_string_buffer(size)
        self.call("VTAInvalidateCache", pointer, physical, size)
        self.call("VTAMemCopyToHost", ctypes.cast(data, _POINTER), pointer, size)
        return data.raw


def run(folder: Path) -> None:
    """Runs the request in `folder` and writes `result`.

    Raises:
        DriverError: if the library cannot be used or reports a failure.
    """
    request = json.loads((folder / "request").read_text())
    config = Configuration.from_numbers(request["config"])
    memory, words = (folder / "memory").read_bytes(), (folder / "program").read_bytes()
    numbers = (
        int.from_bytes(words[at : at + INSTRUCTION_BYTES], "little") for at in range(0, len(words), INSTRUCTION_BYTES)
    )
    instructions = decode_program(numbers, config)
    library = Library(request["libraries"])
    unit = alignment(config)
    with library.buffer(len(memory) + unit) as (pointer, physical), library.buffer(len(words)) as stream:
        skip = -physical % unit
        pointer, physical = pointer + skip, physical + skip
        library.write(pointer, physical, memory)
        library.write(*stream, encode_program(relocate(instructions, config, physical), config))
        device = library.call("VTADeviceAlloc")
        if not device:
            raise DriverError("VTADeviceAlloc found no device")
        try:
            failed = library.call("VTADeviceRun", device, stream[1], len(instructions), request["wait_cycles"])
        finally:
            library.call("VTADeviceFree", device)
        if failed:
            raise DriverError(f"VTADeviceRun returned {failed}: not finished after {request['wait_cycles']} cycles")
        result = library.read(pointer, physical, len(memory))
    (folder / "result").write_bytes(result)


def main() -> int:
    """Returns the exit code; the reason of a failure goes to standard error."""
    try:
        run(Path(sys.argv[1]))
    except DriverError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
