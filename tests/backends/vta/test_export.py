"""Exported C on a driver whose device is our simulator: results, addresses, caches, states, and what is refused."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heron_asp.backends.vta.checker import check
from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.driver import relocate
from heron_asp.backends.vta.encode import decode_program, encode_program
from heron_asp.backends.vta.functional import simulate
from heron_asp.backends.vta.library import export, export_tuned
from heron_asp.backends.vta.library import moving as moving_module
from heron_asp.backends.vta.library.export import _kernel
from heron_asp.backends.vta.library.kernel import Kernel, Role
from heron_asp.backends.vta.library.moving import Moves, verify
from heron_asp.backends.vta.machine import numbers_of
from heron_asp.backends.vta.measure import VtaDevice
from heron_asp.cli.app import run as heron
from heron_asp.errors import ExitCode, HeronError, InternalError, MissingError
from heron_asp.library import Tuned
from heron_asp.measure.data import cases
from heron_asp.operators import operator
from heron_asp.operators.operator import parse_shape
from heron_asp.resources import targets_folder
from heron_asp.target import Target, load_target
from heron_asp.task import Task
from tests.backends.vta.devices import SMALL

PYNQ = load_target(targets_folder() / "vta-pynq.toml")
USUAL = PYNQ.shared.defaults.epilogue
DRIVER = Path(__file__).parent / "simulated_driver.c"
COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc) for the exported source")
FLAGS = ("-std=c11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-unused-parameter")
OK, NULL, NOT_SET, NO_MEMORY, DRIVER_FAILED = range(5)
RUN = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_uint8), *(ctypes.c_uint32,) * 5
)  # memory, its physical address and size, the stream, instructions, how long to wait


def tuned(
    name: str, epilogue: str = USUAL, layout: str | None = None, target: Target = PYNQ, seed: int = 0, **shape: int
) -> Tuned:
    """A program as tuning finds one: sampled, its cycles counted."""
    task = Task(operator(name, shape, "s8s8s32", layout, epilogue), target)
    (candidate,) = task.space.sample(1, np.random.default_rng(seed), {})
    seconds = VtaDevice(task).compare([candidate], 1)[0][0]
    return Tuned(task, candidate, seconds, 0.5)


class Exported:
    """An exported library, compiled with a driver and loaded.

    Attributes:
        folder: where it is.
        fails: whether VTADeviceRun says so.
        streams: what it was given.
    """

    def __init__(self, programs: list[Tuned], folder: Path, name: str = "kernels") -> None:
        self.folder, self.fails, self.streams = folder, False, [0]
        self.manifest = export_tuned(programs, folder, name)
        self.kernels = {one.name: one for one in self.manifest.kernels}
        self.config = numbers_of(programs[0].task.target).config
        binary = folder / "lib.so"
        assert COMPILER
        sources = [str(DRIVER), str(folder / f"{name}.c"), str(folder / "example.c")]
        subprocess.run([COMPILER, *FLAGS, "-Dmain=example", *sources, "-o", str(binary)], check=True)
        self.library = ctypes.CDLL(str(binary))
        self._callback = RUN(self._run)
        self.library.simulated_run(self._callback)

    def _run(self, memory: Any, first: int, size: int, stream: int, count: int, wait: int) -> int:
        assert wait == 100_000_000
        if self.fails:
            return 1
        dram = np.ctypeslib.as_array(memory, (size,))
        image = np.concatenate([np.zeros(first, np.uint8), dram])
        raw = image[stream : stream + 16 * count].tobytes()
        program = decode_program(
            (int.from_bytes(raw[at : at + 16], "little") for at in range(0, len(raw), 16)), self.config
        )
        assert check(program, self.config, image) == []
        simulate(program, image, self.config)
        dram[:] = image[first:]
        self.streams.append(stream)
        return 0

    def call(self, function: str, *arguments: Any) -> int:
        passed = [one.ctypes.data_as(ctypes.c_void_p) if isinstance(one, np.ndarray) else one for one in arguments]
        return int(getattr(self.library, function)(*passed))

    def open(self, name: str) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        assert self.call(f"{name}_open", ctypes.byref(handle)) == OK
        return handle

    def close(self, name: str, handle: ctypes.c_void_p | None) -> None:
        function = getattr(self.library, f"{name}_close")
        function.restype = None
        function(handle)

    def compute(self, one: Tuned, name: str) -> None:
        """Sets constants once and compares calls on all test inputs that have the same ones."""
        handle = self.open(name)
        result = one.task.operator.result
        entry = self.kernels[name]
        for case in cases(one.task.operator):
            operands = []
            for tensor in entry.tensors:
                contents = np.ascontiguousarray(case.inputs[tensor.name]) if tensor.role != Role.RESULT else None
                if tensor.role == Role.CONSTANT:
                    assert self.call(f"{name}_set_{tensor.name}", handle, contents) == OK
                elif tensor.role == Role.OPERAND:
                    operands.append(contents)
            for _ in range(2):
                found = np.full(result.shape, 99, result.dtype.numpy)
                assert self.call(f"{name}_run", handle, *operands, found) == OK
                assert case.error(found) is None
        self.close(name, handle)
        assert self.library.simulated_held() == 0


CASES = {
    "gemm": ("gemm", f"bias,{USUAL}", None, "m=33,n=20,k=40"),
    "residual": ("gemm", f"add,bias,{USUAL}", None, "m=9,n=35,k=10"),
    "strided": ("conv2d", f"bias,{USUAL}", None, "n=2,h=9,w=8,ci=5,co=20,kh=3,kw=3,padding=1,stride=2"),
    "groups": ("conv2d", USUAL, "channels-first", "n=1,h=6,w=7,ci=8,co=6,kh=3,kw=2,padding=1,groups=2"),
    "phases": ("conv2d_transposed", USUAL, None, "n=1,h=5,w=4,ci=5,co=18,kh=4,kw=4,stride=2,padding=1"),
    "uneven": ("conv2d_transposed", USUAL, "channels-first", "n=1,h=4,w=5,ci=3,co=4,kh=3,kw=3,stride=2"),
    "batches": ("batch_matmul", USUAL, None, "batch=2,m=5,n=6,k=19"),
    "sums": ("scan", USUAL, None, "m=4,n=9,k=9"),
    "vector": ("gemv", f"bias,{USUAL}", None, "m=9,k=30"),
}


@needs_compiler
@pytest.mark.parametrize("said", CASES.values(), ids=CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_results_are_those_of_numpy(
    said: tuple[str, str, str | None, str], seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name, epilogue, layout, shape = said
    one = tuned(name, epilogue, layout, seed=seed, **parse_shape(shape))
    exported = Exported([one], tmp_path)
    (symbol,) = exported.kernels
    exported.compute(one, symbol)
    assert exported.streams[-1] % 4096 == 256, "moved to the next multiple of the largest element"
    assert exported.call("example") == 0
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == f"{symbol}: equals the reference\n"


@needs_compiler
def test_two_rows_in_an_entry(tmp_path: Path) -> None:
    one = tuned("gemm", f"bias,{USUAL}", target=SMALL, m=9, n=20, k=10)
    exported = Exported([one], tmp_path)
    exported.compute(one, *exported.kernels)


@needs_compiler
def test_an_example_notices_what_is_wrong(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    exported = Exported([tuned("gemm", m=9, n=5, k=8)], tmp_path)
    nothing = RUN(lambda *_: 0)
    exported.library.simulated_run(nothing)
    assert exported.call("example") == 1
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out.endswith("WRONG\n")


@pytest.fixture
def two(tmp_path: Path) -> tuple[Exported, Tuned, Tuned]:
    first, second = tuned("gemm", f"bias,{USUAL}", m=17, n=16, k=16), tuned("gemm", f"bias,{USUAL}", m=5, n=6, k=7)
    return Exported([first, second], tmp_path), first, second


@needs_compiler
def test_several_kernels_at_once(two: tuple[Exported, Tuned, Tuned]) -> None:
    exported, first, second = two
    small, large = exported.kernels
    held = exported.open(large)
    handle = exported.open(small)
    assert exported.library.simulated_held() == 4
    exported.close(small, handle)
    exported.close(large, held)
    exported.compute(second, small)
    exported.compute(first, large)


@needs_compiler
def test_states_and_failures_have_codes(two: tuple[Exported, Tuned, Tuned]) -> None:
    exported, _, one = two
    name = next(iter(exported.kernels))
    case = cases(one.task.operator)[0]
    a, b, bias = (np.ascontiguousarray(case.inputs[key]) for key in ("a", "b", "bias"))
    c = np.full((5, 6), 99, np.int8)
    assert exported.call(f"{name}_open", None) == NULL
    assert exported.call(f"{name}_run", None, a, c) == NULL
    assert exported.call(f"{name}_set_b", None, b) == NULL
    exported.close(name, None)
    for allocations, expected in ((0, NO_MEMORY), (1, DRIVER_FAILED)):
        handle = ctypes.c_void_p(1)
        exported.library.simulated_left(allocations)
        assert exported.call(f"{name}_open", ctypes.byref(handle)) == expected
        assert handle.value is None
        assert exported.library.simulated_held() == 0
    exported.library.simulated_left(-1)
    handle = exported.open(name)
    assert exported.call(f"{name}_set_b", handle, None) == NULL
    assert exported.call(f"{name}_run", handle, a, None) == NULL
    assert exported.call(f"{name}_run", handle, None, c) == NULL
    assert exported.call(f"{name}_run", handle, a, c) == NOT_SET
    assert exported.call(f"{name}_set_b", handle, b) == OK
    assert exported.call(f"{name}_run", handle, a, c) == NOT_SET, "the bias is not set"
    assert exported.call(f"{name}_set_bias", handle, bias) == OK
    exported.fails = True
    assert exported.call(f"{name}_run", handle, a, c) == DRIVER_FAILED
    assert (c == 99).all()
    exported.fails = False
    assert exported.call(f"{name}_run", handle, a, c) == OK
    assert case.error(c) is None
    exported.close(name, handle)
    exported.library.kernels_error.restype = ctypes.c_char_p
    assert exported.library.kernels_error(NOT_SET) == b"a constant operand is not set"
    assert len({exported.library.kernels_error(status) for status in range(6)}) == 6


def test_the_manifest_says_what_is_there(tmp_path: Path) -> None:
    fast, slow = (tuned("gemm", f"bias,{USUAL}", m=33, n=20, k=40, seed=seed) for seed in range(2))
    slow = replace(slow, seconds=fast.seconds * 2)
    manifest = export_tuned([slow, fast], tmp_path, "mine", "my_")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["example.c", "manifest.json", "mine.c", "mine.h"]
    said = json.loads((tmp_path / "manifest.json").read_text())
    assert said == json.loads(json.dumps(manifest.to_json()))
    (kernel,) = said["kernels"]
    assert kernel["name"] == "my_gemm_bias_shift_8_clip_0_127_narrow_s8_s8s8s32_m33_n20_k40"
    assert kernel["cycles"] == round(fast.seconds * 100e6)
    assert [(one["name"], one["role"], one["shape"]) for one in kernel["tensors"]] == [
        ("a", "operand", [33, 40]), ("b", "constant", [40, 20]), ("bias", "constant", [20]), ("c", "result", [33, 20]),
    ]  # fmt: skip
    assert said["measured"].startswith("cycles, model of the RTL")
    assert said["configuration"]["log_wgt_buff_size"] == 18
    assert [one["kept_seconds"] for one in said["dropped"]] == [fast.seconds]
    assert f"int {kernel['name']}_set_b(struct {kernel['name']} *kernel, const int8_t *b)" in said["functions"]
    assert "  my_gemm" in manifest.summary()[1]
    assert "left out" in manifest.summary()[2]


# -- moving ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["vta-pynq", "vta-32", "vta-de10"])
def test_words_are_moved_like_instructions(device: str) -> None:
    target = load_target(targets_folder() / f"{device}.toml")
    kernel = _kernel(tuned("conv2d", target=target, n=1, h=6, w=6, ci=20, co=20, kh=3, kw=3, padding=1), "", "k0")
    config = kernel.lowered.problem.config
    moves = Moves.of(config)
    for base in (0, moves.alignment, 7 * moves.alignment, 1 << 30):
        expected = encode_program(relocate(kernel.lowered.instructions, config, base), config)
        assert moves.moved(kernel.words, base).tobytes() == expected


def test_the_place_of_an_address_follows_from_the_configuration() -> None:
    moves = Moves.of(Configuration())
    assert (moves.address.word, moves.address.shift, moves.address.mask) == (0, 26, 0xFFFFFFFF)
    assert moves.shifts == (2, 8, 4, 6, 4, 4)
    assert Moves.of(Configuration(log_block=5, log_acc_buff_size=18)).alignment == 1024


def test_what_is_wrong_elsewhere_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tuned("gemm", m=17, n=16, k=16)
    broken = Moves.of(Configuration())
    broken = replace(broken, shifts=(*broken.shifts[:2], 5, *broken.shifts[3:]))
    monkeypatch.setattr(moving_module.Moves, "of", classmethod(lambda *_: broken))
    kernel: Kernel = _kernel(one, "", "k0")
    with pytest.raises(InternalError, match=r"m17_n16_k16 at address 1280: "):
        verify(kernel)
    with pytest.raises(InternalError):
        export_tuned([one], tmp_path / "lib")
    assert not (tmp_path / "lib").exists()


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_one_library_is_refused(tmp_path: Path) -> None:
    one = tuned("gemm", m=8, n=16, k=16)
    other = tuned("gemm", target=load_target(targets_folder() / "vta-32.toml"), m=8, n=32, k=32)
    with pytest.raises(HeronError, match="the programs are for different targets"):
        export_tuned([one, other], tmp_path / "lib")
    with pytest.raises(HeronError, match="there is no run to export"):
        export_tuned([], tmp_path / "lib")
    with pytest.raises(HeronError, match="--name 9: not a lower-case C identifier"):
        export_tuned([one], tmp_path / "lib", "9")
    with pytest.raises(HeronError, match="--prefix My_: not a lower-case C identifier"):
        export_tuned([one], tmp_path / "lib", prefix="My_")
    assert not (tmp_path / "lib").exists()
    (tmp_path / "file").touch()
    with pytest.raises(HeronError, match=r"--out .*file: "):
        export_tuned([one], tmp_path / "file")


def test_programs_beyond_what_drivers_allocate_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("heron_asp.backends.vta.library.export"), "MOST_BYTES", 20_000)
    with pytest.raises(HeronError, match=r"gemm s8s8s32 .*: it needs \d+ bytes; VTA's drivers allocate at most 20000"):
        export_tuned([tuned("gemm", m=8, n=16, k=16)], tmp_path / "lib")


@needs_compiler
def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, library = tmp_path / "run", tmp_path / "lib"
    said = ["gemm", "-s", "m=9,n=16,k=16", "-t", "vta-pynq", "--trials", "2", "--out", str(run)]
    assert heron(["tune", *said]) == 0
    capsys.readouterr()
    assert heron(["export", str(run), "-o", str(library)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("kernels.c for vta-pynq: 1 kernel, simulated and equal to the reference\n")
    assert "cycles = " in shown
    assert "measured: cycles, model of the RTL" in shown
    assert heron(["export", str(run), "-o", str(library), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["run"] == str(run)
    with pytest.raises(HeronError, match="given twice"):
        export([run, run], library)
    with pytest.raises(HeronError, match="a run directory"):
        export([run], run)
    with pytest.raises(MissingError):
        export([tmp_path / "nothing"], library)
    (run / "result.json").unlink()
    (run / "trials.jsonl").unlink()
    with pytest.raises(HeronError, match="no trial was correct") as caught:
        export([run], library)
    assert caught.value.code is ExitCode.NO_SURVIVOR
