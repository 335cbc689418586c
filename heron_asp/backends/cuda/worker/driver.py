"""The CUDA driver through ctypes: the functions that measuring needs."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np

from .options import MISSING, WorkerError

_ATTRIBUTES = {  # numbers of CUdevice_attribute in cuda.h; `threads` to `blocks` are of a multiprocessor
    "multiprocessors": 16,
    "l2_bytes": 38,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "threads": 39,
    "shared_bytes": 81,
    "registers": 82,
    "blocks": 106,
    "shared_bytes_of_block": 97,
    "shared_bytes_reserved": 111,
    "major": 75,
    "minor": 76,
}
_DYNAMIC_SHARED = 8  # of CUfunction_attribute
_TELLING = {  # numbers of CUresult
    200: "damaged, or not a cubin",
    209: "compiled for another architecture",
    500: "there is none of that name",
    700: "a kernel accesses memory that is not its own",
    701: "too many registers, threads or bytes of shared memory for a launch",
    716: "a kernel accesses memory at a misaligned address",
    719: "a kernel failed",
}
_INT, _UINT, _SIZE = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_ANY = ctypes.c_void_p  # a handle, or an address on the host
_ADDRESS = ctypes.c_uint64  # on the device
_SIGNATURES: dict[str, Any] = {
    "cuInit": [_UINT],
    "cuDriverGetVersion": [_ANY],
    "cuDeviceGetCount": [_ANY],
    "cuDeviceGet": [_ANY, _INT],
    "cuDeviceGetName": [_ANY, _INT, _INT],
    "cuDeviceGetAttribute": [_ANY, _INT, _INT],
    "cuDevicePrimaryCtxRetain": [_ANY, _INT],
    "cuCtxSetCurrent": [_ANY],
    "cuCtxSynchronize": [],
    "cuMemAlloc_v2": [_ANY, _SIZE],
    "cuMemFree_v2": [_ADDRESS],
    "cuMemcpyHtoD_v2": [_ADDRESS, _ANY, _SIZE],
    "cuMemcpyDtoH_v2": [_ANY, _ADDRESS, _SIZE],
    "cuMemsetD8Async": [_ADDRESS, ctypes.c_ubyte, _SIZE, _ANY],
    "cuModuleLoadData": [_ANY, ctypes.c_char_p],
    "cuModuleUnload": [_ANY],
    "cuModuleGetFunction": [_ANY, _ANY, ctypes.c_char_p],
    "cuFuncGetAttribute": [_ANY, _INT, _ANY],
    "cuFuncSetAttribute": [_ANY, _INT, _INT],
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": [_ANY, _ANY, _INT, _SIZE],
    "cuLaunchKernel": [_ANY, *[_UINT] * 7, _ANY, _ANY, _ANY],
    "cuEventCreate": [_ANY, _UINT],
    "cuEventRecord": [_ANY, _ANY],
    "cuEventSynchronize": [_ANY],
    "cuEventElapsedTime": [_ANY, _ANY, _ANY],
    "cuGetErrorName": [_INT, _ANY],
}


class DriverError(Exception):
    """A function of the driver failed."""

    def __init__(self, function: str, number: int, name: str) -> None:
        super().__init__(f"{function}: {name} ({number})" + (f": {_TELLING[number]}" if number in _TELLING else ""))


class Driver:
    """The CUDA driver, and its first device with a context that is current.

    Raises:
        WorkerError: there is no driver, or no device.
    """

    def __init__(self, library: str) -> None:
        self._functions: dict[str, Any] = {}
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise WorkerError(f"no CUDA driver: {error}", "--driver names its library", MISSING) from None
        try:
            self.call("cuInit", 0)
            count = self.out("cuDeviceGetCount", _INT)
            if not count:
                raise WorkerError("the CUDA driver finds no device", "nvidia-smi says more", MISSING)
            self._device = self.out("cuDeviceGet", _INT, 0)
            self.call("cuCtxSetCurrent", self.out("cuDevicePrimaryCtxRetain", _ANY, self._device))
        except DriverError as error:
            raise WorkerError(f"the CUDA driver opens no device: {error}", "nvidia-smi says more", MISSING) from None

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function.

        Raises:
            DriverError: it fails.
            WorkerError: the library has none of that name.
        """
        number = (self._functions.get(name) or self._find(name))(*arguments)
        if number:
            said = ctypes.c_char_p()
            self._library.cuGetErrorName(number, ctypes.byref(said))
            raise DriverError(name, number, (said.value or b"an error").decode())

    def _find(self, name: str) -> Any:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise WorkerError(f"the driver's library has no {name}", "--driver takes a libcuda.so", MISSING) from None
        function.argtypes = _SIGNATURES[name]
        self._functions[name] = function
        return function

    def out(self, name: str, kind: Any, *arguments: Any) -> Any:
        """Calls a function that writes to its first argument; what it wrote."""
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def facts(self) -> dict[str, Any]:
        """What results have to be read with; clocks as the driver states them, in kHz."""
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, self._device)
        found = {
            key: self.out("cuDeviceGetAttribute", _INT, number, self._device) for key, number in _ATTRIBUTES.items()
        }
        architecture = f"sm_{found.pop('major')}{found.pop('minor')}"
        version = self.out("cuDriverGetVersion", _INT)
        return {"name": name.value.decode(), "architecture": architecture, "driver": version, **found}

    def synchronize(self) -> None:
        """Waits for all that was enqueued."""
        self.call("cuCtxSynchronize")

    # --- memory ---

    def allocate(self, nbytes: int) -> int:
        """Memory on the device."""
        return int(self.out("cuMemAlloc_v2", _ADDRESS, nbytes))

    def free(self, address: int) -> None:
        """Gives memory back."""
        self.call("cuMemFree_v2", address)

    def fill(self, address: int, value: int, nbytes: int) -> None:
        """Enqueues a memset."""
        self.call("cuMemsetD8Async", address, value, nbytes, None)

    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Copies an array to the device."""
        array = np.ascontiguousarray(array)
        self.call("cuMemcpyHtoD_v2", address, array.ctypes.data, array.nbytes)

    def download(self, address: int, nbytes: int) -> np.ndarray[Any, Any]:
        """Bytes of the device's memory."""
        array = np.empty(nbytes, np.uint8)
        self.call("cuMemcpyDtoH_v2", array.ctypes.data, address, nbytes)
        return array

    # --- modules and kernels ---

    def load(self, cubin: bytes) -> Any:
        """A module."""
        return self.out("cuModuleLoadData", _ANY, cubin)

    def unload(self, module: Any) -> None:
        """Gives a module back."""
        self.call("cuModuleUnload", module)

    def function(self, module: Any, name: str) -> Any:
        """A kernel of a module."""
        return self.out("cuModuleGetFunction", _ANY, module, name.encode())

    def attribute(self, function: Any, number: int) -> int:
        """An attribute of a kernel: a number of CUfunction_attribute."""
        return int(self.out("cuFuncGetAttribute", _INT, number, function))

    def allow_shared(self, function: Any, nbytes: int) -> None:
        """Lets a kernel have so many bytes of dynamic shared memory."""
        self.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, nbytes)

    def occupancy(self, function: Any, threads: int, nbytes: int) -> int:
        """How many blocks of a kernel fit on a multiprocessor."""
        return int(self.out("cuOccupancyMaxActiveBlocksPerMultiprocessor", _INT, function, threads, nbytes))

    # --- events ---

    def event(self) -> Any:
        """An event that has a time."""
        return self.out("cuEventCreate", _ANY, 0)

    def record(self, event: Any) -> None:
        """Enqueues an event."""
        self.call("cuEventRecord", event, None)

    def seconds(self, begin: Any, end: Any) -> float:
        """Waits for an event: the time since another one."""
        self.call("cuEventSynchronize", end)
        return float(self.out("cuEventElapsedTime", ctypes.c_float, begin, end)) / 1e3


def runs_on(cubin: str, device: str) -> bool:
    """Whether a cubin of one architecture runs on a device of another: no newer, of the same generation."""
    found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", cubin), re.fullmatch(r"sm_(\d+)(\d)", device)
    if not found[0] or not found[1]:
        return False
    (generation, least, letter), (major, minor) = found[0].groups(), found[1].groups()
    return generation == major and (minor == least if letter == "a" else minor >= least)
