"""How long a call of a kernel takes, on a machine that does other things too.

A scheduler hands a core over every few milliseconds. A repetition that is longer than that contains the others' work
with certainty, a shorter one often does not, so the least of many short repetitions is right where the least of a few
long ones is not. A call that is itself longer is timed in processor time, which does not count while others run;
several threads have no such clock and are timed by the wall.

Measured on two cores that six processes shared, error of the least over 32 ms against the truth, the median of 40:
repetitions of 20 ms 110 %, of 4 ms 0.6 %, of 1 ms 0.4 %; a call of 5 ms by the wall 145 %, in processor time 0.6 %.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from heron_asp.schedule.replay import KERNEL

_LONG = 1e-3  # seconds of a call beside which the microsecond of calling it from Python does not count
_GUESS = 1e-4  # seconds of a first repetition


class Stopwatch:
    """Times calls of a kernel with the same arguments.

    Args:
        executable: what TVM compiled.
        arguments: tensors of a call.
        threads: that a call uses.
        repeat_ms: about how long a repetition is; one call if that is longer.

    Attributes:
        guess: seconds of a call, from a first, short repetition.
    """

    def __init__(self, executable: Any, arguments: Sequence[Any], threads: int, repeat_ms: float) -> None:
        self._arguments = arguments
        self._kernel = executable[KERNEL]
        self._module = executable.mod
        self._clock = time.thread_time if threads == 1 else time.perf_counter
        self._calls = 1
        self._direct = True
        self.guess = self.seconds()
        if self.guess < _LONG:
            self._direct = False
            self._calls = _calls(self.guess, _GUESS)
            self.guess = self.seconds()
        self._calls = _calls(self.guess, repeat_ms / 1e3)

    def seconds(self) -> float:
        """Seconds of a call, from one repetition."""
        if not self._direct:
            return self._looped()
        start = self._clock()
        for _ in range(self._calls):
            self._kernel(*self._arguments)
        return (self._clock() - start) / self._calls

    def _looped(self) -> float:
        """The same by TVM's own loop, for calls that are short beside calling them from Python."""
        import tvm

        evaluator = self._module.time_evaluator(KERNEL, tvm.cpu(0), number=self._calls, repeat=1)
        return float(evaluator(*self._arguments).results[0])


def _calls(seconds: float, wanted: float) -> int:
    """Calls that take about so long; a clock may say 0 for a call that is shorter than its step."""
    return max(1, round(wanted / max(seconds, 1e-9)))
