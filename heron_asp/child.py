"""Runs a function in a forked process with a clock for each of its phases.

The parent has TVM imported and has never run a parallel kernel, so a fork is cheap and safe; a crash, an abort inside
LLVM or a hang ends the child and becomes a result.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Report = Callable[[str, Any], Any]
_DIE_WITH_PARENT = 1  # Linux's PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Outcome:
    """What a child reported before it ended.

    Attributes:
        reports: (phase that ended, value, seconds it took), in order.
        timed_out: the phase in which time ran out.
        signal: the signal that killed it, 0 if none.
        stderr: what it wrote to standard error, the last 4,000 bytes.
    """

    reports: tuple[tuple[str, Any, float], ...]
    timed_out: bool = False
    signal: int = 0
    stderr: str = ""

    def value(self, phase: str) -> Any:
        """What was reported at the end of a phase, None if it did not get there."""
        return next((value for name, value, _ in self.reports if name == phase), None)

    def seconds(self, phase: str) -> float:
        """How long a phase took, 0 if it did not end."""
        return next((seconds for name, _, seconds in self.reports if name == phase), 0.0)


def run_in_child(work: Callable[[Report], None], deadlines: Sequence[float]) -> Outcome:
    """Calls `work(report)` in a child. Each report ends a phase; phase i may take `deadlines[i]` seconds.

    Exceptions are reported as the phase `error`.
    """
    return Child(work, deadlines).outcome()


class Child:
    """A forked process that calls `work(report)`.

    Args:
        work: each of its reports ends a phase.
        deadlines: seconds that each phase may take; the last one holds for all further phases.
        pause: a phase at whose end the child stops until `go`; the report then returns what `go` was given.
    """

    def __init__(self, work: Callable[[Report], None], deadlines: Sequence[float], pause: str = "") -> None:
        self.deadlines = deadlines
        self._pause = pause
        self._reports: list[tuple[str, Any, float]] = []
        self._buffer = bytearray()
        self._timed_out = self._open_end = False
        self._reader, writer = os.pipe()
        gate, self._gate = os.pipe()
        self._errors = os.memfd_create("stderr") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
        self._phase_start = time.monotonic()
        self._pid = os.fork()
        if self._pid == 0:
            _child(work, writer, gate, self._errors, pause)
        os.close(writer)
        os.close(gate)

    def reached(self, phase: str) -> bool:
        """Waits until a phase has ended; False if the child ended, or ran out of time, before."""
        while not any(name == phase for name, _, _ in self._reports):
            if not self._read():
                return False
        return True

    def go(self, value: Any = None) -> None:
        """Lets a child that pauses go on."""
        if self.reached(self._pause):
            with contextlib.suppress(BrokenPipeError):  # it has died
                _send(self._gate, value)
            self._phase_start = time.monotonic()

    def outcome(self) -> Outcome:
        """Waits for the end."""
        try:
            while self._read():
                pass
        finally:
            status, stderr = self._end()
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) and not self._timed_out else 0
        finished = any(name in ("done", "error") for name, _, _ in self._reports)
        return Outcome(tuple(self._reports), self._timed_out, 0 if finished else killed, stderr)

    def kill(self) -> None:
        """Ends it, whatever it does."""
        self._end()

    def _read(self) -> bool:
        """Reads what comes next; False where nothing more will come."""
        if self._timed_out or self._open_end:
            return False
        deadline = self.deadlines[min(len(self._reports), len(self.deadlines) - 1)]
        remaining = self._phase_start + deadline - time.monotonic()
        if not select.select([self._reader], [], [], max(0.0, remaining))[0]:
            self._timed_out = True
            return False
        data = os.read(self._reader, 1 << 20)
        self._open_end = not data
        self._buffer += data
        for message in _messages(self._buffer):
            self._reports.append(message)
            self._phase_start = time.monotonic()
        return not self._open_end

    def _end(self) -> tuple[int, str]:
        """Kills and reaps it: its exit status, and the end of what it wrote to standard error."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        size = os.lseek(self._errors, 0, os.SEEK_END)
        os.lseek(self._errors, max(0, size - 4000), os.SEEK_SET)
        stderr = os.read(self._errors, 4000).decode(errors="replace")
        for file in (self._reader, self._gate, self._errors):
            os.close(file)
        return status, stderr


def _messages(buffer: bytearray) -> Iterator[Any]:
    """The whole messages at the front of a buffer, which loses them."""
    while len(buffer) >= 8 and len(buffer) >= 8 + (size := int.from_bytes(buffer[:8], "little")):
        message = pickle.loads(bytes(buffer[8 : 8 + size]))  # noqa: S301 - from our own processes
        del buffer[: 8 + size]
        yield message


def _send(file: int, value: Any) -> None:
    data = pickle.dumps(value)
    view = memoryview(len(data).to_bytes(8, "little") + data)
    while view:
        view = view[os.write(file, view) :]


def _receive(file: int) -> Any:
    buffer = bytearray()
    while data := os.read(file, 1 << 16):
        buffer += data
        for message in _messages(buffer):
            return message
    raise EOFError("the parent is gone")


def _child(work: Callable[[Report], None], writer: int, gate: int, errors: int, pause: str) -> None:
    """Never returns."""
    os.dup2(errors, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    start = time.monotonic()

    def report(name: str, value: Any) -> Any:
        nonlocal start
        _send(writer, (name, value, time.monotonic() - start))
        answer = _receive(gate) if name == pause else None
        start = time.monotonic()
        return answer

    try:
        work(report)
        report("done", None)
    except Exception as error:  # the boundary of a process: everything becomes a result
        report("error", f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)
