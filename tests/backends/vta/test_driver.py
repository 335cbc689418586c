"""Running on a library, here a tiny one of ours that is compiled for the test."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from heron_asp.backends.vta.__main__ import main
from heron_asp.backends.vta.checker import require_valid
from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.driver import VARIABLE, find_library, relocate, run_on_library
from heron_asp.backends.vta.encode import encode_program, encode_uops
from heron_asp.backends.vta.functional import simulate
from heron_asp.backends.vta.isa import Alu, AluOp, Finish, Instruction, Load, Memory, MicroOp, Store
from heron_asp.errors import HeronError, MissingError

FAKE = Path(__file__).parent / "fake_driver.c"
COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc) for the fake library")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fake") / "libfake_vta.so"
    assert COMPILER
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", "-o", str(path), str(FAKE)], check=True)
    return path


def copy_program() -> list[Instruction]:
    """Loads 2 x 3 accumulators, adds 0 (which the fake leaves out) and stores them as 2 rows with a gap."""
    return [
        Load(memory_type=Memory.UOP, dram_base=1024, y_size=1, x_size=1, x_stride=1),
        Load(memory_type=Memory.ACC, sram_base=4, dram_base=80, y_size=2, x_size=3, x_stride=4),
        Alu(alu_opcode=AluOp.ADD, use_imm=1, uop_end=1, iter_out=1, iter_in=6, dst_factor_in=1, src_factor_in=1,
            push_next=1),
        Store(sram_base=4, dram_base=600, y_size=2, x_size=3, x_stride=5, pop_prev=1, push_prev=1),
        Load(memory_type=Memory.UOP, pop_next=1),
        Finish(),
    ]  # fmt: skip


def copy_memory(config: Configuration) -> np.ndarray:
    image = np.random.default_rng(3).integers(0, 256, 12288).astype(np.uint8)
    image[4096:4100] = encode_uops([MicroOp(4, 4)], config).view(np.uint8)
    return image


@needs_compiler
def test_memory_is_as_simulated(library: Path, config: Configuration) -> None:
    image = copy_memory(config)
    require_valid(copy_program(), config, image)
    found = run_on_library([library], copy_program(), image, config)
    assert (image == copy_memory(config)).all(), "the image given is not changed"
    simulate(copy_program(), image, config)
    assert (found == image).all()
    assert (found != copy_memory(config)).any()


@needs_compiler
@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("hang", "did not end within 1 s"),
        ("crash", "ended with SIGABRT\nassertion in the model"),
        ("late", "VTADeviceRun returned 1: not finished after 100000000 cycles"),
    ],
)
def test_a_library_that_fails(
    mode: str, message: str, library: Path, config: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VTA", mode)
    begin = time.monotonic()
    with pytest.raises(HeronError, match=message):
        run_on_library([library], copy_program(), copy_memory(config), config, timeout=1 if mode == "hang" else 60)
    assert time.monotonic() - begin < 30


@needs_compiler
def test_a_library_of_something_else(tmp_path: Path, config: Configuration) -> None:
    source, path = tmp_path / "other.c", tmp_path / "libother.so"
    source.write_text("int answer(void) { return 42; }\n")
    assert COMPILER
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    with pytest.raises(HeronError, match="has no function VTADeviceAlloc: it is no VTA driver library"):
        run_on_library([path], copy_program(), copy_memory(config), config)


def test_a_file_that_is_no_library(tmp_path: Path, config: Configuration) -> None:
    path = tmp_path / "libtext.so"
    path.write_text("text")
    with pytest.raises(HeronError, match=r"libtext\.so cannot be loaded"):
        run_on_library([path], copy_program(), copy_memory(config), config)


@needs_compiler
def test_the_command_line(
    library: Path,
    tmp_path: Path,
    config: Configuration,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = copy_memory(config)
    after = image.copy()
    counters = simulate(copy_program(), after, config)
    words = encode_program(copy_program(), config)
    row = {
        "id": "copy",
        "config": config.model_dump(),
        "memory_size": len(image),
        "memory": [{"address": 0, "bytes": base64.b64encode(image).decode()}],
        "instructions": [words[i : i + 16][::-1].hex() for i in range(0, len(words), 16)],
        "output": [{"address": 0, "bytes": base64.b64encode(after).decode()}],
        "counters": counters.to_json(),
    }
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row))
    assert main([str(path), "--json", "--vta-library", str(library)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["files"][0]["programs"][0]["library"] is True
    monkeypatch.setenv(VARIABLE, str(library))
    monkeypatch.setenv("FAKE_VTA", "late")
    assert main([str(path), "--json", "--vta-library"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["files"][0]["summary"]["library_equal"] == 0
    assert "library: the VTA library failed" in report["files"][0]["programs"][0]["notes"][0]


def test_finding_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(MissingError, match=f"no VTA library is named\nGive --vta-library or set {VARIABLE}"):
        find_library()
    first, second = tmp_path / "libtvm_runtime.so", tmp_path / "libvta_fsim.so"
    first.touch()
    second.touch()
    assert find_library(str(second)) == [second]
    monkeypatch.setenv(VARIABLE, f"{first}{os.pathsep}{second}")
    assert find_library() == [first, second]
    with pytest.raises(MissingError, match=r"nowhere\.so \(from --vta-library\) is no file"):
        find_library(str(tmp_path / "nowhere.so"))
    assert main(["x.jsonl", "--vta-library", str(tmp_path / "nowhere.so")]) == 5


def test_relocation(config: Configuration) -> None:
    moved = relocate(copy_program(), config, 1 << 20)
    assert [getattr(i, "dram_base", None) for i in moved] == [
        1024 + (1 << 18), 80 + (1 << 14), None, 600 + (1 << 16), 0, None,
    ]  # fmt: skip
    with pytest.raises(HeronError, match="instruction 1: address 80 is no multiple of the 64 bytes of ACC"):
        relocate(copy_program(), config, 80)


def test_images_are_bounded(config: Configuration, tmp_path: Path) -> None:
    with pytest.raises(HeronError, match="at most 33554432 contiguous"):
        run_on_library([tmp_path], [Finish()], np.zeros((32 << 20) + 1, np.uint8), config)
