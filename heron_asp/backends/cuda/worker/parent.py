"""The process that hands candidates to a worker process, keeps the results, and starts another where one is lost."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

from . import JOBS, RESULTS, VERSION
from .options import MISSING, Json, Options, WorkerError

_START, _ATTEMPTS = 120.0, 3  # seconds that opening the device may take, and how often it is tried in a row
_SLICE = 0.2  # seconds after which it is looked whether to stop
_ENDING = 30.0  # seconds that a killed process may take to end: the driver waits for the device

Say = Callable[[str], None]


class _Stop:
    """Whether the run is to end: set by signals, so that nothing is cut in the middle."""

    def __init__(self, limit: float) -> None:
        self.deadline = time.monotonic() + limit
        self.interrupted = False

    @property
    def asked(self) -> bool:
        return self.interrupted or time.monotonic() >= self.deadline

    @contextlib.contextmanager
    def by_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask to stop; only the main thread may say so."""

        def ask(number: int, frame: Any) -> None:
            self.interrupted = True

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, ask) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


class Results:
    """The file of results: whole lines only, each on the disk before the next candidate starts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        data = path.read_bytes() if path.exists() else b""
        self._file = os.open(str(path), os.O_WRONLY | os.O_CREAT, 0o644)
        whole = data.rfind(b"\n") + 1  # a line that was cut is measured again
        os.ftruncate(self._file, whole)
        os.lseek(self._file, whole, os.SEEK_SET)
        try:
            rows = [json.loads(line) for line in data[:whole].splitlines()]
        except ValueError:
            raise WorkerError(f"{path} is damaged", "move it away to measure again") from None
        self._device: Json | None = next((row["device"] for row in rows if "device" in row), None)
        self.status: dict[str, str] = {row["id"]: row["status"] for row in rows if "id" in row}

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def add(self, row: Json) -> None:
        """Adds the line of a candidate."""
        self._write(row)
        self.status[row["id"]] = row["status"]

    def of(self, device: Json) -> None:
        """Says on which device the following results are measured.

        Raises:
            WorkerError: those that are there are of another one.
        """
        if self._device is None:
            self._write({"version": VERSION, "device": device})
            self._device = device
        known, found = ([one["name"], one["architecture"]] for one in (self._device, device))
        if known != found:
            said = f"{self._path} is of {known[0]}, this machine has {found[0]}"
            raise WorkerError(said, "move it away to measure again")

    def _write(self, row: Json) -> None:
        line = (json.dumps(row) + "\n").encode()
        while line:
            line = line[os.write(self._file, line) :]
        os.fsync(self._file)


class _Process:
    """A worker process: candidates go in by number, lines of JSON come out."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        self._buffer = b""

    def send(self, number: int) -> None:
        """Asks for a candidate."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has died, which `line` finds out
            self._process.stdin.write(b"%d\n" % number)
            self._process.stdin.flush()

    def line(self, seconds: float, stop: _Stop) -> Json | None:
        """The next line; None if it ended, ran out of time or the run is to stop."""
        assert self._process.stdout
        file, deadline = self._process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = min(_SLICE, deadline - time.monotonic())
            if left <= 0 or stop.asked:
                return None
            if select.select([file], [], [], left)[0]:
                data = os.read(file, 1 << 16)
                if not data:
                    return None
                self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        found: Json = json.loads(line)
        return found

    def end(self) -> str:
        """Ends it; how it had ended by itself, empty if it had not.

        Raises:
            WorkerError: it cannot be ended.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_SLICE)  # what has closed its pipe is about to end
        code = self._process.poll()
        self._process.kill()
        try:
            self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            raise WorkerError("the driver does not let go of a hung kernel", "reset the device", MISSING) from None
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe
                pipe.close()
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        self._errors.close()
        if code is None:
            return ""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return ": ".join([f"the worker process {how}", *last])


class _Run:
    """The candidates of a folder, one after the other."""

    def __init__(self, options: Options, command: Sequence[str], results: Results, stop: _Stop) -> None:
        self._options = options
        self._command = command
        self._results = results
        self._stop = stop
        self._process: _Process | None = None

    def measure(self, number: int, name: str) -> Json | None:
        """The line of a candidate; None if the run is to stop before there is one.

        A process that ends without a line is the fault of a candidate only if it measured nothing before.
        """
        fresh = self._process is None
        process = self._process or self._open()
        if process is None:
            return None
        process.send(number)
        begin = time.monotonic()
        row = process.line(self._options.job_limit, self._stop)
        if row is None:
            late = time.monotonic() - begin >= self._options.job_limit
            ended = self.close()
            if self._stop.asked and not ended:
                return None
            if ended and not fresh:
                return self.measure(number, name)
            said = ended or f"no result within {self._options.job_limit:g} s"
            return {"id": name, "status": "timeout" if late and not ended else "runtime", "error": said}
        if row.pop("lost"):
            self.close()
        return row

    def _open(self) -> _Process | None:
        """A process that has opened the device."""
        said = ""
        for _ in range(_ATTEMPTS):
            self._process = _Process(self._command)
            found = self._process.line(_START, self._stop)
            if found and "device" in found:
                self._results.of(found["device"])
                return self._process
            if found:
                raise WorkerError(found["error"], found["hint"], found["code"])
            said = self.close() or f"opening the device takes more than {_START:g} s"
            if self._stop.asked:
                return None
        raise WorkerError(said, "does nvidia-smi still answer?", MISSING)

    def close(self) -> str:
        """Ends the process, if there is one; how it had ended by itself."""
        process, self._process = self._process, None
        return process.end() if process else ""


def read(folder: Path) -> Json:
    """The jobs of a folder.

    Raises:
        WorkerError: there are none.
    """
    path = folder / JOBS
    try:
        jobs: Json = json.loads(path.read_text())
    except OSError as error:
        raise WorkerError(f"{path}: {error.strerror}", "a folder of compiled candidates has one") from None
    except ValueError as error:
        raise WorkerError(f"{path} is damaged: {error}", "copy the folder again") from None
    if not isinstance(jobs, dict) or jobs.get("version") != VERSION:
        raise WorkerError(f"{path} is not of version {VERSION}", "write the folder again with this heron_asp")
    return jobs


def work(folder: Path, options: Options, command: list[str], say: Say) -> Json:
    """Measures all candidates of a folder that have no result yet.

    Args:
        folder: what `jobs.py` wrote.
        options: how.
        command: starts a worker process; the folder and the options are appended.
        say: is told of each result.

    Returns:
        `candidates`, `measured` in this run, `left`, `interrupted` and how many have which `status`.

    Raises:
        WorkerError: nothing can be measured, or no more; what was measured is in the file.
    """
    jobs = read(folder)["candidates"]
    stop = _Stop(options.limit)
    measured = 0
    results = Results(folder / RESULTS)
    whole = [*command, str(folder), "--serve", "--driver", options.driver, "--timing", str(options.timing)]
    run = _Run(options, whole, results, stop)
    with contextlib.ExitStack() as last, stop.by_signals():
        last.callback(results.close)
        last.callback(run.close)
        for number, job in enumerate(jobs):
            if job["id"] in results.status:
                continue
            row = None if stop.asked else run.measure(number, job["id"])
            if row is None:
                break
            results.add(row)
            measured += 1
            say(f"{len(results.status)}/{len(jobs)} {_told(row)}")
    found = list(results.status.values())
    counts = {status: found.count(status) for status in sorted(set(found))}
    left = len(jobs) - len(found)
    return {
        "candidates": len(jobs),
        "measured": measured,
        "left": left,
        "interrupted": stop.interrupted,
        "status": counts,
    }


def _told(row: Json) -> str:
    if row["status"] != "correct":
        return f"{row['id']}: {row['status']}: {row['error']}"
    return f"{row['id']}: {row['cold']['median'] * 1e6:.2f} us cold, {row['warm']['median'] * 1e6:.2f} us warm"
