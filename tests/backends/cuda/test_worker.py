"""The worker on a driver without a device: what it finds, what it survives, what it says."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from heron_asp.backends.cuda import worker
from heron_asp.backends.cuda.worker.driver import runs_on
from heron_asp.cli.app import run
from tests.backends.cuda.folders import COLD, WARM, entry_of, kernel_of, renamed, usual, write

QUICK = ("--timing", "0.001", "--job-limit", "20")


class Call:
    """Runs the packed worker as a machine without heron_asp would."""

    def __init__(self, driver: Path, place: Path) -> None:
        self.driver = driver
        self.file = worker.pack(place / worker.FILE)

    def command(self, folder: Path, *options: str) -> list[str]:
        return [sys.executable, str(self.file), str(folder), "--driver", str(self.driver), *QUICK, *options]

    def __call__(self, folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(folder, *options),
            env=without_heron(environment),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )


def without_heron(more: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | more


@pytest.fixture
def call(fake_driver: Path, tmp_path: Path) -> Call:
    return Call(fake_driver, tmp_path)


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / worker.RESULTS).read_text().splitlines()]
    return {line["id"]: line for line in lines if "id" in line}


def test_what_is_right_has_times_and_what_is_wrong_has_a_reason(call: Call, emulated: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "jobs", usual(emulated))
    done = call(folder)
    assert done.returncode == 0, done.stderr
    rows = rows_of(folder)
    assert list(rows) == ["product", "doubled", "wrong", "nothing", "beyond", "absent", "spoils", "large", "huge"]
    product = rows["product"]
    assert product["status"] == "correct"
    assert product["cold"] == {"median": pytest.approx(COLD), "minimum": pytest.approx(COLD), "runs": 21, "calls": 1}
    assert product["warm"]["median"] == pytest.approx(WARM)
    assert 0 < product["worst"] < 1
    assert product["kernels"] == [
        {"name": "product", "static_shared": 0, "local_bytes": 0, "registers": 32, "occupancy": 8}
    ]
    assert rows["wrong"]["status"] == rows["nothing"]["status"] == rows["beyond"]["status"] == "correctness"
    assert "1 of 256 elements are wrong" in rows["wrong"]["error"]
    assert rows["wrong"]["error"].endswith("at 255 of c")
    assert "256 of 256 elements are wrong, the first is nan" in rows["nothing"]["error"]
    assert rows["beyond"]["error"] == "a kernel writes behind the end of c, 12 bytes on"
    assert rows["absent"]["status"] == "compile"
    assert "kernel absent: cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500)" in rows["absent"]["error"]
    assert rows["spoils"]["status"] == rows["large"]["status"] == "correct"
    assert rows["huge"]["status"] == "runtime"
    assert "huge asks for 204800 bytes of dynamic shared memory" in rows["huge"]["error"]


def test_two_kernels_run_in_their_order(call: Call, emulated: Path, tmp_path: Path) -> None:
    """The doubled factor comes through a scratch buffer: twice the product, which is wrong."""
    folder = write(tmp_path / "jobs", usual(emulated)[1:2])
    assert call(folder).returncode == 0
    row = rows_of(folder)["doubled"]
    assert row["status"] == "correctness"
    assert [kernel["name"] for kernel in row["kernels"]] == ["twice", "product"]
    numbers = row["error"].split("the first is ")[1].split(", at")[0]
    found, wanted = map(float, numbers.split(" instead of "))
    assert found == pytest.approx(2 * wanted, rel=1e-3)


def test_the_first_line_is_the_device(call: Call, emulated: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "jobs", usual(emulated)[:1])
    call(folder)
    first = json.loads((folder / worker.RESULTS).read_text().splitlines()[0])
    assert first["version"] == worker.VERSION
    assert first["device"]["name"] == "fake device"
    assert first["device"]["architecture"] == "sm_80"
    assert first["device"]["l2_bytes"] == 1 << 16
    assert first["device"]["driver"] == 13000


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ("sticky", "runtime", "CUDA_ERROR_ILLEGAL_ADDRESS (700): a kernel accesses memory that is not its own"),
        ("crash", "runtime", "the worker process was killed by signal 6"),
        ("hang", "timeout", "no result within 1 s"),
        ("launch", "runtime", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701): too many registers"),
    ],
)
def test_a_fault_is_a_row_and_the_next_candidate_is_measured(
    call: Call, emulated: Path, tmp_path: Path, fault: str, status: str, said: str
) -> None:
    names = ("before", "faulty", "after")
    folder = write(tmp_path / "jobs", [entry_of(emulated, kernel_of(name)) for name in names])
    done = call(folder, "--job-limit", "1", FAKE_FAULTS=f"faulty={fault}")
    assert done.returncode == 0, done.stderr
    rows = rows_of(folder)
    assert [rows[name]["status"] for name in names] == ["correct", status, "correct"]
    assert said in rows["faulty"]["error"]


def test_a_program_that_the_emulator_refuses_costs_one_process(call: Call, emulated: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "jobs", [entry_of(emulated, kernel_of("illegal")), usual(emulated)[0]])
    call(folder)
    rows = rows_of(folder)
    assert rows["illegal"]["status"] == "runtime"
    assert rows["product"]["status"] == "correct"


def test_results_are_kept_and_the_rest_is_measured(call: Call, emulated: Path, tmp_path: Path) -> None:
    product = usual(emulated)[0]
    folder = write(tmp_path / "jobs", [renamed(product, str(number)) for number in range(4)])
    call(folder)
    file = folder / worker.RESULTS
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:3]) + lines[3][: len(lines[3]) // 2])  # the device, two results and a half
    done = call(folder)
    assert json.loads(done.stdout) == {
        "candidates": 4, "measured": 2, "left": 0, "interrupted": False, "status": {"correct": 4},
    }  # fmt: skip
    assert file.read_bytes().splitlines(keepends=True)[:3] == lines[:3]
    assert sorted(rows_of(folder)) == ["0", "1", "2", "3"]


def test_no_time_left_starts_nothing_and_is_no_failure(call: Call, emulated: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "jobs", [entry_of(emulated, kernel_of(name)) for name in ("faulty", "product")])
    done = call(folder, "--limit", "2", FAKE_FAULTS="faulty=hang")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["left"] == 2
    assert rows_of(folder) == {}, "what was cut by the end of the run has no result"
    assert json.loads(call(folder).stdout)["status"] == {"correct": 2}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_file_whole(call: Call, emulated: Path, tmp_path: Path, number: int) -> None:
    folder = write(tmp_path / "jobs", [entry_of(emulated, kernel_of(name)) for name in ("product", "faulty")])
    running = subprocess.Popen(
        call.command(folder), env=without_heron({"FAKE_FAULTS": "faulty=hang"}), stdout=subprocess.PIPE, text=True
    )
    file = folder / worker.RESULTS
    for _ in range(200):
        if file.exists() and file.read_bytes().count(b"\n") == 2:
            break
        time.sleep(0.1)
    running.send_signal(number)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 130
    assert json.loads(out)["interrupted"]
    assert list(rows_of(folder)) == ["product"]


def test_the_process_of_a_killed_worker_ends(call: Call, emulated: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "jobs", [entry_of(emulated, kernel_of(name)) for name in ("product", "faulty")])
    running = subprocess.Popen(
        call.command(folder), env=without_heron({"FAKE_FAULTS": "faulty=hang"}), stderr=subprocess.PIPE, text=True
    )
    assert running.stderr
    running.stderr.readline()
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    assert len(children) == 1
    running.kill()
    running.communicate(timeout=30)
    for _ in range(100):
        if not Path(f"/proc/{children[0]}").exists():
            return
        time.sleep(0.1)
    pytest.fail("the worker process outlives its parent")


def test_errors_that_concern_all_candidates(call: Call, emulated: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "jobs", usual(emulated)[:1])
    absent = call(folder, "--driver", "libnothing.so.1")
    assert (absent.returncode, absent.stderr.splitlines()[-1]) == (5, "hint: --driver names its library")
    assert "error: no CUDA driver: libnothing.so.1" in absent.stderr
    none = call(folder, FAKE_DEVICES="0")
    assert (none.returncode, "opens no device: cuInit: CUDA_ERROR_NO_DEVICE (100)" in none.stderr) == (5, True)
    other = call(folder, FAKE_ARCHITECTURE="90")
    assert other.returncode == 2
    assert "holds cubins for sm_80, fake device is sm_90" in other.stderr
    libc = call(folder, "--driver", "libc.so.6")
    assert (libc.returncode, "the driver's library has no cuInit" in libc.stderr) == (5, True)
    nothing = call(tmp_path)
    assert (nothing.returncode, "jobs.json: No such file" in nothing.stderr) == (2, True)
    assert rows_of(folder) == {}


def test_results_of_another_device_are_not_mixed(call: Call, emulated: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "jobs", usual(emulated)[:2])
    call(folder)
    file = folder / worker.RESULTS
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:2]).replace("fake device", "other device"))
    done = call(folder)
    assert done.returncode == 2
    assert "is of other device, this machine has fake device" in done.stderr


def test_cubins_that_do_not_load(call: Call, emulated: Path, tmp_path: Path) -> None:
    good = emulated.read_bytes()
    for_device = good[:18] + (190).to_bytes(2, "little") + good[20:]
    cubins = {"text": b"no cubin at all" * 10, "foreign": for_device, "damaged": good, "absent": good + b"\0"}
    entries = []
    for name, data in cubins.items():
        (tmp_path / name).write_bytes(data)
        entries.append(entry_of(tmp_path / name, kernel_of("product"), name=name))
    folder = write(tmp_path / "jobs", entries)
    jobs = {one["id"]: folder / one["cubin"] for one in json.loads((folder / "jobs.json").read_text())["candidates"]}
    jobs["damaged"].write_bytes(good[:-100])
    jobs["absent"].unlink()
    assert call(folder).returncode == 0
    rows = rows_of(folder)
    assert {row["status"] for row in rows.values()} == {"compile"}
    assert rows["text"]["error"].endswith("CUDA_ERROR_INVALID_IMAGE (200): damaged, or not a cubin")
    assert rows["foreign"]["error"].endswith("CUDA_ERROR_NO_BINARY_FOR_GPU (209): compiled for another architecture")
    assert "is damaged: its hash" in rows["damaged"]["error"]
    assert rows["absent"]["error"].endswith("No such file or directory")


def test_the_command_of_heron_asp(
    fake_driver: Path, emulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "jobs", usual(emulated)[:3])
    assert run(["worker", str(folder), "--driver", str(fake_driver), "--timing", "0.001"]) == 0
    assert "1 correct, 2 correctness" in capsys.readouterr().out
    assert run(["worker", str(folder), "--driver", "libnothing.so", "--json"]) == 0, "there is nothing left to do"
    assert json.loads(capsys.readouterr().out)["measured"] == 0
    assert run(["worker", str(tmp_path)]) == 2
    assert "jobs.json: No such file" in capsys.readouterr().err
    assert run(["worker", str(folder), "--pack"]) == 0
    assert (folder / worker.FILE).exists()


def test_equal_sources_make_equal_files(tmp_path: Path) -> None:
    one, other = (worker.pack(tmp_path / name).read_bytes() for name in ("one", "other"))
    assert one == other


def test_the_syntax_is_that_of_python_3_8() -> None:
    folder = Path(worker.__file__).parent
    for file in folder.glob("*.py"):
        tree = ast.parse(file.read_text(), feature_version=(3, 8))
        imported = {node.names[0].name for node in ast.walk(tree) if isinstance(node, ast.Import)}
        imported |= {
            node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level
        }
        foreign = {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names) - {"numpy"}
        assert not foreign, file.name


@pytest.mark.parametrize(
    ("cubin", "device", "runs"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("sm_90a", "sm_90", True),
        ("sm_100a", "sm_103", False),
        ("sm_120", "sm_121", True),
        ("compute_80", "sm_80", False),
    ],
)
def test_which_cubins_run_on_a_device(cubin: str, device: str, runs: bool) -> None:
    assert runs_on(cubin, device) == runs
