"""Runs a function in a forked process with a clock for each of its phases.

The parent has TVM imported and has never run a parallel kernel, so a fork is cheap and safe; a crash, an abort inside
LLVM or a hang ends the child and becomes a result.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Report = Callable[[str, Any], None]


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


def run_in_child(work: Callable[[Report], None], deadlines: list[float]) -> Outcome:
    """Calls `work(report)` in a child. Each report ends a phase; phase i may take `deadlines[i]` seconds.

    Exceptions are reported as the phase `error`.
    """
    reader, writer = os.pipe()
    errors = os.memfd_create("stderr") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
    child = os.fork()
    if child == 0:
        _child(work, reader, writer, errors)
    os.close(writer)
    reports: list[tuple[str, Any, float]] = []
    buffer = bytearray()
    phase_start = time.monotonic()
    timed_out = False
    try:
        while True:
            deadline = deadlines[min(len(reports), len(deadlines) - 1)]
            remaining = phase_start + deadline - time.monotonic()
            ready = select.select([reader], [], [], max(0.0, remaining))[0]
            if not ready:
                timed_out = True
                break
            data = os.read(reader, 1 << 20)
            if not data:
                break
            buffer += data
            while len(buffer) >= 8 and len(buffer) >= 8 + (size := int.from_bytes(buffer[:8], "little")):
                name, value = pickle.loads(buffer[8 : 8 + size])  # noqa: S301 - from our own child
                del buffer[: 8 + size]
                reports.append((name, value, time.monotonic() - phase_start))
                phase_start = time.monotonic()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(reader)
        size = os.lseek(errors, 0, os.SEEK_END)
        os.lseek(errors, max(0, size - 4000), os.SEEK_SET)
        stderr = os.read(errors, 4000).decode(errors="replace")
        os.close(errors)
    killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) and not timed_out else 0
    finished = any(name in ("done", "error") for name, _, _ in reports)
    return Outcome(tuple(reports), timed_out, 0 if finished else killed, stderr)


def _child(work: Callable[[Report], None], reader: int, writer: int, errors: int) -> None:
    """Never returns."""
    os.close(reader)
    os.dup2(errors, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle

    def report(name: str, value: Any) -> None:
        data = pickle.dumps((name, value))
        view = memoryview(len(data).to_bytes(8, "little") + data)
        while view:
            view = view[os.write(writer, view) :]

    try:
        work(report)
        report("done", None)
    except Exception as error:  # the boundary of a process: everything becomes a result
        report("error", f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)
