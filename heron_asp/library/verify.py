"""Checks a library before it is handed over: every kernel, through the public functions, against the reference.

Tuning has checked the program; compiled anew, with free leading dimensions and another run time, it is checked anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heron_asp.child import Report, run_in_child
from heron_asp.errors import InternalError
from heron_asp.library.call import SharedLibrary
from heron_asp.library.choice import Kernel
from heron_asp.measure.data import cases

_GAPS = (0, 5)  # elements between rows: compact, and so that rows begin anywhere
_SECONDS = 300.0  # a kernel, its references included


def verify(library: Path, name: str, kernels: Sequence[Kernel]) -> None:
    """Checks every kernel of a library in a child process.

    Raises:
        InternalError: a kernel is wrong, crashes or hangs.
    """

    def work(report: Report) -> None:
        loaded = SharedLibrary(library, name)
        for kernel in kernels:
            report(kernel.symbol, _wrong(loaded, kernel))

    outcome = run_in_child(work, [_SECONDS])
    for kernel in kernels:
        done = any(phase == kernel.symbol for phase, _, _ in outcome.reports)
        error = outcome.value(kernel.symbol)
        if not done:
            how = f"took more than {_SECONDS:g} s" if outcome.timed_out else f"was killed by signal {outcome.signal}"
            error = outcome.value("error") or how
        if error:
            raise InternalError(f"{kernel.symbol} of the exported library: {error}")


def _wrong(library: SharedLibrary, kernel: Kernel) -> str | None:
    """What is wrong with a kernel; None if nothing is."""
    operator = kernel.tuned.task.operator
    library.set_threads(kernel.threads)
    for case in cases(operator):
        for gap in _GAPS if operator.strided else _GAPS[:1]:
            error = case.error(library.compute(kernel.interface, operator, case.inputs, gap))
            if error:
                return f"with {gap} elements between rows, {error}" if operator.strided else error
    return None
