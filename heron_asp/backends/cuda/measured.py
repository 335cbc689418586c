"""Runs the worker on a folder of candidates, here or on another machine, and reads its results."""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from heron_asp.backends.cuda.jobs import read_jobs
from heron_asp.backends.cuda.worker import FILE, JOBS, RESULTS, pack
from heron_asp.backends.cuda.worker.options import Options, WorkerError
from heron_asp.backends.cuda.worker.parent import Say, work
from heron_asp.errors import ExitCode, HeronError
from heron_asp.measure.result import Status

logger = logging.getLogger(__name__)
_NOT_CONNECTED = 255  # the exit code of ssh itself
_CODES = (ExitCode.USAGE, ExitCode.MISSING)


@dataclass(frozen=True)
class Device:
    """The device of some results; clocks in kHz, sizes in bytes, as its driver states them."""

    name: str
    architecture: str
    driver: int
    multiprocessors: int
    l2_bytes: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    threads: int
    shared_bytes: int
    registers: int
    blocks: int
    shared_bytes_of_block: int
    shared_bytes_reserved: int
    event_seconds: float


@dataclass(frozen=True)
class Times:
    """Seconds of a call; `calls` were made in each of the `runs`."""

    median: float
    minimum: float
    runs: int
    calls: int


@dataclass(frozen=True)
class KernelFacts:
    """What the driver knows of a kernel; `local_bytes` of a thread are spilt registers and arrays."""

    name: str
    registers: int
    static_shared: int
    local_bytes: int
    occupancy: int


@dataclass(frozen=True)
class Measured:
    """The result of a candidate.

    Attributes:
        name: its id in the folder.
        status: what became of it.
        error: why it has no time.
        worst: the largest error of its results, as a share of what is allowed.
        cold, warm: its times, None unless correct.
        kernels: as far as they could be loaded.
    """

    name: str
    status: Status
    error: str = ""
    worst: float = 0.0
    cold: Times | None = None
    warm: Times | None = None
    kernels: tuple[KernelFacts, ...] = ()


@dataclass(frozen=True)
class Results:
    """What was measured of a folder; `device` is None where nothing was."""

    device: Device | None
    candidates: tuple[Measured, ...]


@dataclass(frozen=True)
class Local:
    """This machine.

    Attributes:
        python: that has numpy.
    """

    python: str = sys.executable


@dataclass(frozen=True)
class Host:
    """A machine that `ssh` reaches, with tar, Python 3.8 and numpy.

    Attributes:
        name: as ssh takes it: a host, `user@host` or a name in its configuration.
        folder: on that machine, below which each folder of candidates gets one of its own.
        python: of that machine.
        ssh: the command, with options of its own.
    """

    name: str
    folder: str = "heron-asp-jobs"
    python: str = "python3"
    ssh: Sequence[str] = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15")


def run_jobs(folder: Path, where: Local | Host, options: Options, say: Say = logger.info) -> Results:
    """Measures what has no result yet in a folder, and returns all results.

    Args:
        folder: what `jobs.write_jobs` wrote; its `results.jsonl` is what a run goes on from.
        where: the machine with the GPU.
        options: how; `driver` is a library of that machine.
        say: is told of each result.

    Raises:
        HeronError: the folder is damaged, the machine is not reached, has no GPU or another one.
    """
    read_jobs(folder)
    if isinstance(where, Host):
        _run_there(folder, where, options, say)
    else:
        if work_here(folder, options, say, where.python)["interrupted"]:
            raise KeyboardInterrupt
    return read_results(folder)


def read_results(folder: Path) -> Results:
    """The results of a folder; none where nothing was measured. A last line that was cut is left out.

    Raises:
        HeronError: a line is not one of the worker's.
    """
    path = folder / RESULTS
    data = path.read_bytes() if path.exists() else b""
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    device, found = None, []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            if "device" in row:
                device = Device(**row["device"])
            else:
                found.append(_measured(row))
        except (ValueError, TypeError, KeyError) as error:
            raise HeronError(f"{path}, line {number}: {error}", "move it away to measure again") from None
    return Results(device, tuple(found))


def _measured(row: dict[str, Any]) -> Measured:
    cold, warm = (Times(**row[name]) if name in row else None for name in ("cold", "warm"))
    kernels = tuple(KernelFacts(**one) for one in row.get("kernels", ()))
    status = Status(row["status"])
    return Measured(row["id"], status, row.get("error", ""), row.get("worst", 0.0), cold, warm, kernels)


def work_here(folder: Path, options: Options, say: Say, python: str = sys.executable) -> dict[str, Any]:
    """Runs the worker on this machine, and returns what it says at the end.

    Raises:
        HeronError: nothing can be measured: what is wrong, and the exit code for it.
    """
    with tempfile.TemporaryDirectory() as place:
        file = pack(Path(place) / FILE)
        try:
            return dict(work(folder, options, [python, str(file)], say))
        except WorkerError as error:
            raise HeronError(error.message, error.hint, ExitCode(error.code)) from None


# --- on another machine: one stream of tar there, the results back, so that ssh is all that is needed ---


def _run_there(folder: Path, host: Host, options: Options, say: Say) -> None:
    digest = sha256((folder / JOBS).read_bytes()).hexdigest()[:12]  # no results of others that are called alike
    there = f"{host.folder}/{folder.resolve().name}-{digest}"
    quoted = shlex.quote(there)
    with tempfile.TemporaryDirectory() as place:
        pack(Path(place) / FILE)
        names = [JOBS, "cubins", "data"] + [RESULTS] * (folder / RESULTS).exists()
        archive = ["tar", "-cf", "-", "-C", str(folder.resolve()), *names, "-C", place, FILE]
        with subprocess.Popen(archive, stdout=subprocess.PIPE) as packing:
            _ssh(host, f"mkdir -p {quoted} && tar -xf - -C {quoted}", "copying the candidates", packing.stdout)
    said = [host.python, f"{there}/{FILE}", there, "--driver", options.driver]
    said += ["--limit", str(options.limit), "--job-limit", str(options.job_limit), "--timing", str(options.timing)]
    try:
        _watch(host, " ".join(map(shlex.quote, said)), say)
    finally:  # what was measured is kept, however the run ended
        fetched = _ssh(host, f"cat {quoted}/{RESULTS} || true", "fetching the results")
        if fetched:
            new = folder / f"{RESULTS}.new"
            new.write_bytes(fetched)
            new.replace(folder / RESULTS)


def _watch(host: Host, command: str, say: Say) -> None:
    """Runs the worker on a host and passes on what it says."""
    lines: list[str] = []
    with subprocess.Popen([*host.ssh, host.name, command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as run:
        assert run.stderr
        for data in run.stderr:
            lines.append(data.decode(errors="replace").rstrip())
            say(lines[-1])
        code = run.wait()
    if not code:
        return
    _raise_unless_connected(host, code, "measuring", lines)
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    said = (errors or lines or [f"exit code {code}"])[-1]
    known = ExitCode(code) if code in _CODES else ExitCode.USAGE
    raise HeronError(f"{host.name}: {said}", (hints or [f"needs {host.python} with numpy there"])[-1], known)


def _ssh(host: Host, command: str, doing: str, given: Any = subprocess.DEVNULL) -> bytes:
    """Runs a command on a host and returns what it prints."""
    try:
        done = subprocess.run([*host.ssh, host.name, command], stdin=given, capture_output=True, check=False)
    except FileNotFoundError:
        raise HeronError(f"{host.ssh[0]} is not on this machine", "install an ssh client", ExitCode.MISSING) from None
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    _raise_unless_connected(host, done.returncode, doing, lines)
    if done.returncode:
        said = (lines or [f"exit code {done.returncode}"])[-1]
        raise HeronError(f"{doing} on {host.name}: {said}", "", ExitCode.MISSING)
    return done.stdout


def _raise_unless_connected(host: Host, code: int, doing: str, lines: Sequence[str]) -> None:
    if code == _NOT_CONNECTED:
        said = (list(lines) or ["no message"])[-1]
        hint = f"`{' '.join([*host.ssh, host.name, 'true'])}` has to work without a question"
        raise HeronError(f"ssh to {host.name}, {doing}: {said}", hint, ExitCode.MISSING)
