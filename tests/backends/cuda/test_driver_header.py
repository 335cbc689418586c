"""The functions and numbers that the worker calls the driver with are those of the toolkit's cuda.h."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from heron_asp.backends.cuda.nvcc import find_nvcc
from heron_asp.backends.cuda.worker import bench, driver
from heron_asp.errors import HeronError

_KINDS = {
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "unsigned char": ctypes.c_ubyte,
    "size_t": ctypes.c_size_t,
    "CUdeviceptr": ctypes.c_uint64,
    "CUdevice": ctypes.c_int,
    "CUresult": ctypes.c_int,
}


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of cuda.h, where nvcc finds it."""
    source = tmp_path_factory.mktemp("header") / "includes.cu"
    source.write_text("#include <cuda.h>\n")
    try:
        command = [str(find_nvcc()), "-M", str(source)]
    except HeronError:
        pytest.skip("no nvcc")
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    found = re.search(r"\S+/cuda\.h\b", done.stdout)
    if not found:
        pytest.skip(f"nvcc finds no cuda.h: {done.stderr}")
    return Path(found[0]).read_text(errors="replace")


def _kind(parameter: str) -> object:
    said = parameter.rsplit(None, 1) if not parameter.rstrip().endswith("*") else [parameter]
    kind = said[0].replace("const ", "").strip()
    if "*" in parameter:
        return ctypes.c_char_p if "char *name" in parameter and "const" in parameter else ctypes.c_void_p
    if kind.endswith("_attribute"):  # enumerations
        return ctypes.c_int
    return _KINDS.get(kind, ctypes.c_void_p)  # handles


@pytest.mark.parametrize("name", driver._SIGNATURES)
def test_parameters(header: str, name: str) -> None:
    base = name.removesuffix("_v2")
    found = re.search(rf"^CUresult CUDAAPI {base}\(([^;]*)\);", header, re.MULTILINE)
    assert found, base
    said = " ".join(found[1].split())
    parameters = [] if said in ("", "void") else [one.strip() for one in said.split(",")]
    given = driver._SIGNATURES[name]
    wanted = [_kind(one) for one in parameters]
    if name == "cuModuleLoadData":  # bytes are given to it
        assert given == [ctypes.c_void_p, ctypes.c_char_p]
        given = [ctypes.c_void_p, ctypes.c_void_p]
    assert given == wanted, said
    renamed = f"#define {base} " in header and re.search(
        rf"^#define {base} +(?:__CUDA_\w+\()?(\w+)", header, re.MULTILINE
    )
    if renamed and renamed[1] != base and base != "cuEventElapsedTime":  # of which the old one is the same function
        assert renamed[1] == name


def test_numbers(header: str) -> None:
    def number(name: str) -> int:
        found = re.search(rf"\b{name} *= *(\d+)", header)
        assert found, name
        return int(found[1])

    device = {
        "multiprocessors": "MULTIPROCESSOR_COUNT",
        "l2_bytes": "L2_CACHE_SIZE",
        "clock_khz": "CLOCK_RATE",
        "memory_clock_khz": "MEMORY_CLOCK_RATE",
        "memory_bus_bits": "GLOBAL_MEMORY_BUS_WIDTH",
        "threads": "MAX_THREADS_PER_MULTIPROCESSOR",
        "shared_bytes": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
        "registers": "MAX_REGISTERS_PER_MULTIPROCESSOR",
        "blocks": "MAX_BLOCKS_PER_MULTIPROCESSOR",
        "shared_bytes_of_block": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
        "shared_bytes_reserved": "RESERVED_SHARED_MEMORY_PER_BLOCK",
        "major": "COMPUTE_CAPABILITY_MAJOR",
        "minor": "COMPUTE_CAPABILITY_MINOR",
    }
    assert {key: number(f"CU_DEVICE_ATTRIBUTE_{name}") for key, name in device.items()} == driver._ATTRIBUTES
    kernel = {"static_shared": "SHARED_SIZE_BYTES", "local_bytes": "LOCAL_SIZE_BYTES", "registers": "NUM_REGS"}
    assert {key: number(f"CU_FUNC_ATTRIBUTE_{name}") for key, name in kernel.items()} == bench._OF_KERNEL
    assert number("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES") == driver._DYNAMIC_SHARED
    errors = ("INVALID_IMAGE", "NO_BINARY_FOR_GPU", "NOT_FOUND", "ILLEGAL_ADDRESS", "LAUNCH_OUT_OF_RESOURCES")
    errors += ("MISALIGNED_ADDRESS", "LAUNCH_FAILED")
    assert set(driver._TELLING) == {number(f"CUDA_ERROR_{name}") for name in errors}
