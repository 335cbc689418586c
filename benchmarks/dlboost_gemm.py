"""int8 matrix products: the exported library against oneDNN and NumPy, on the same machine in the same run.

Both libraries are called from C on the same matrices, weights packed ahead on both sides, in turn; outputs are checked
first. The ratio of a row is the median of the ratios of its rounds; above 1 ours is faster. Within 2 % is a tie.

    pip install -e '.[peers]'        # needed: threadpoolctl; with it come oneDNN 3.2 on libgomp and its headers
    python benchmarks/dlboost_gemm.py --out runs/dlboost_gemm

Runs are kept in --out and continued: a second call measures again what the first one tuned.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from heron_asp import LocalDevice, RunDirectory, Task, TuneOptions, operator, resolve_target, tune
from heron_asp.host import require_host
from heron_asp.library import export, find_compiler
from heron_asp.task import available_threads

SHAPES = [(1024, 1024, 1024), (64, 64, 64), (512, 768, 3072), (128, 1008, 2048), (1, 1024, 1024)]  # m, n, k
PEERS = Path(__file__).parent / "peers"
BLOCK = 0.03  # seconds of a timed block
PAUSE = 0.03  # seconds in which the other library's threads go to sleep
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Row:
    """One shape at one number of threads. GOP/s are of the best round, ratios medians over rounds."""

    shape: tuple[int, int, int]
    threads: int
    ours: float
    peak: float | None
    onednn: float | None
    onednn_implementation: str
    numpy: float
    ratio_onednn: float | None
    ratio_numpy: float


def aligned(array: Array) -> Array:
    """A copy at a multiple of 64 bytes."""
    room = np.zeros(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class OursCall(ctypes.Structure):
    """`struct product` of ours.c."""

    _fields_ = [(name, ctypes.c_int) for name in "mnk"] + [(name, ctypes.c_void_p) for name in ("a", "packed_b", "c")]


class Bench:
    """Compiled peers and the two libraries."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder
        self.library = ctypes.CDLL(str(library / "libkernels.so"))
        flags = [f"-I{library}", f"-L{library}", "-lkernels", f"-Wl,-rpath,{library}"]
        self.ours = self._compile("ours.c", flags)
        self.clock = self._compile("clock.c", [])
        self.clock.time_calls.restype = ctypes.c_double
        self.clock.time_calls.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
        self.onednn = self._onednn()

    def _compile(self, source: str, flags: list[str], compiler: str | None = None) -> ctypes.CDLL:
        out = self.folder / f"{Path(source).stem}.so"
        command = [compiler] if compiler else list(find_compiler().command)
        subprocess.run([*command, "-O2", "-shared", "-fPIC", "-o", str(out), str(PEERS / source), *flags], check=True)
        return ctypes.CDLL(str(out))

    def _onednn(self) -> ctypes.CDLL | None:
        prefix = Path(sys.prefix)
        if not (prefix / "include" / "oneapi" / "dnnl" / "dnnl.hpp").exists():
            return None
        flags = ["-std=c++17", "-fopenmp", f"-I{prefix / 'include'}", f"-L{prefix / 'lib'}", "-l:libdnnl.so.3"]
        peer = self._compile("onednn.cpp", [*flags, f"-Wl,-rpath,{prefix / 'lib'}"], compiler="g++")
        peer.onednn_product.restype = ctypes.c_void_p
        peer.onednn_product.argtypes = [ctypes.c_int] * 3 + [ctypes.c_void_p] * 3
        peer.onednn_implementation.restype = ctypes.c_char_p
        peer.onednn_implementation.argtypes = [ctypes.c_void_p]
        return peer

    def seconds(self, function: Any, context: Any, calls: int) -> float:
        """Seconds of one call, over a block; the block before it warms up threads and caches."""
        time.sleep(PAUSE)
        pointer = ctypes.cast(function, ctypes.c_void_p)
        self.clock.time_calls(pointer, context, max(1, calls // 4))
        return float(self.clock.time_calls(pointer, context, calls))

    def row(self, shape: tuple[int, int, int], threads: int, peak: float | None, rounds: int) -> Row:
        """Checks and times one shape."""
        m, n, k = shape
        rng = np.random.default_rng(0)
        a = aligned(rng.integers(0, 256, (m, k), dtype=np.uint8))
        b = aligned(rng.integers(-128, 128, (k, n), dtype=np.int8))
        expected = a.astype(np.float64) @ b.astype(np.float64)
        operations = 2 * prod(shape)
        calls = max(1, int(BLOCK * 4e11 * threads / operations))
        self.library.kernels_set_threads(threads)
        packed = aligned(np.zeros(self.library.gemm_u8s8s32_packed_b_bytes(n, k), np.uint8))
        check = self.library.gemm_u8s8s32_pack_b(
            n, k, ctypes.c_void_p(b.ctypes.data), n, ctypes.c_void_p(packed.ctypes.data)
        )
        assert check == 0, f"packing returned {check}"
        c = aligned(np.zeros((m, n), np.int32))
        call = OursCall(m, n, k, a.ctypes.data, packed.ctypes.data, c.ctypes.data)
        self.ours.ours_run(ctypes.byref(call))
        assert (c == expected).all(), "our result is wrong"
        handle, peer_name = self._peer(shape, threads, a, b, expected)
        af, bf = a.astype(np.float32), b.astype(np.float32)
        threadpool_limits(threads, "blas")
        times: dict[str, list[float]] = {"ours": [], "onednn": [], "numpy": []}
        for number in range(rounds):
            sides = ["ours", "onednn"] if number % 2 else ["onednn", "ours"]
            for side in sides:
                if side == "ours":
                    times[side].append(self.seconds(self.ours.ours_run, ctypes.byref(call), calls))
                elif handle and self.onednn:
                    times[side].append(self.seconds(self.onednn.onednn_run, handle, calls))
        for _ in range(max(3, rounds // 3)):  # by themselves: OpenBLAS's threads spin for 20 ms after a product
            times["numpy"].append(numpy_seconds(af, bf, max(1, calls // 8)))
        ratio = median(o / u for o, u in zip(times["onednn"], times["ours"], strict=True)) if handle else None
        return Row(
            shape,
            threads,
            operations / min(times["ours"]) / 1e9,
            peak,
            operations / min(times["onednn"]) / 1e9 if handle else None,
            peer_name,
            operations / min(times["numpy"]) / 1e9,
            ratio,
            median(times["numpy"]) / median(times["ours"]),
        )

    def _peer(self, shape: tuple[int, int, int], threads: int, a: Array, b: Array, expected: Array) -> tuple[Any, str]:
        if self.onednn is None:
            return None, ""
        self.onednn.onednn_set_threads(threads)
        self.result = aligned(np.zeros(expected.shape, np.int32))  # kept: oneDNN writes there
        m, n, k = shape
        handle = ctypes.c_void_p(
            self.onednn.onednn_product(m, n, k, a.ctypes.data, b.ctypes.data, self.result.ctypes.data)
        )
        self.onednn.onednn_run(handle)
        assert (self.result == expected).all(), "oneDNN's result is wrong"
        return handle, self.onednn.onednn_implementation(handle).decode()


def numpy_seconds(a: Array, b: Array, calls: int) -> float:
    """Seconds of NumPy's float32 product (BLAS), its fastest way to a product of this size; inexact above 2**24."""
    start = time.perf_counter()
    for _ in range(calls):
        a @ b
    return (time.perf_counter() - start) / calls


def tuned(shape: tuple[int, int, int], target: str, threads: int, trials: int, out: Path) -> tuple[Path, float | None]:
    """Tunes a shape, or continues; its run directory and the measured peak in GOP/s."""
    m, n, k = shape
    task = Task(operator("gemm", {"m": m, "n": n, "k": k}), resolve_target(target), threads)
    path = out / f"{m}x{n}x{k}-t{threads}"
    if (path / "result.json").exists():
        return path, json.loads((path / "result.json").read_text())["peak_gops"]
    outcome = tune(task, LocalDevice(task), TuneOptions(trials, seed=1), RunDirectory(path), resume=path.exists())
    return path, outcome.to_json()["peak_gops"]


def print_rows(rows: list[Row]) -> None:
    """The table, and the geometric means."""
    table = Table("m, n, k", "threads", "ours", "of peak", "oneDNN", "numpy f32", "ours / oneDNN", "ours / numpy")
    for row in rows:
        share = f"{100 * row.ours / row.peak:.1f} %" if row.peak else ""
        peer = f"{row.onednn:.0f}" if row.onednn else "not installed"
        ratio = f"{row.ratio_onednn:.2f}" if row.ratio_onednn else ""
        shape = ", ".join(map(str, row.shape))
        cells = (f"{row.ours:.0f} GOP/s", share, peer, f"{row.numpy:.0f}", ratio, f"{row.ratio_numpy:.1f}")
        table.add_row(shape, str(row.threads), *cells)
    console = Console(width=120)
    console.print(table)
    for threads in sorted({row.threads for row in rows}):
        ratios = [row.ratio_onednn for row in rows if row.threads == threads and row.ratio_onednn]
        if ratios:
            mean = prod(ratios) ** (1 / len(ratios))
            console.print(f"threads {threads}: geometric mean {mean:.3f}, worst {min(ratios):.3f} of oneDNN's speed")


def main() -> None:
    """Tunes, exports, checks, times, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="zen4", help="a machine's name or file")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="*", default=sorted({1, available_threads()}))
    parser.add_argument("--out", type=Path, default=Path("runs/dlboost_gemm"))
    arguments = parser.parse_args()
    require_host(resolve_target(arguments.target))
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    runs, peaks = [], {}
    for threads in arguments.threads:
        for shape in SHAPES:
            path, peaks[shape, threads] = tuned(shape, arguments.target, threads, arguments.trials, out)
            runs.append(path)
            print(f"tuned {path.name}", file=sys.stderr)
    export(runs, out / "lib", "kernels")
    bench = Bench(out, out / "lib")
    rows = [
        bench.row(shape, threads, peaks[shape, threads], arguments.rounds)
        for threads in arguments.threads
        for shape in SHAPES
    ]
    print_rows(rows)
    (out / "rows.json").write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
