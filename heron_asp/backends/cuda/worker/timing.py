"""Times calls on a device with events, cold and warm, whatever enqueues them: so that programs are compared alike."""

from __future__ import annotations

import time
from math import ceil
from typing import Callable

from .options import Json

_COLD, _WARM, _LEAST = 21, 11, 3  # repetitions, and how many are made however long they take
_MOST_CALLS, _BATCH = 50, 100e-6  # calls of a warm repetition, and about how many seconds they should take
_MOST_FLUSHES = 64
_RISING = 0.3  # seconds of work after which an idle device has its clocks up
_SHORTEST = 1e-7  # seconds that anything is taken to last

Enqueue = Callable[[], None]


class Stopwatch:
    """Events around calls.

    While the host enqueues calls the device has to be busy, or the events would time the host; flushes keep it so.

    Args:
        flush: enqueues what empties the L2 cache.
        begin, end: enqueue the events.
        seconds: waits for the second event; the time between the two.
        budget: seconds that a timing may take, beyond the least number of repetitions.
    """

    def __init__(
        self, flush: Enqueue, begin: Enqueue, end: Enqueue, seconds: Callable[[], float], budget: float
    ) -> None:
        self._flush = flush
        self._begin = begin
        self._end = end
        self._seconds = seconds
        self._budget = budget
        rising = time.perf_counter() + min(_RISING, budget)
        self._run(flush, 1, 1)  # the first of anything is slow
        while time.perf_counter() < rising:
            self._run(flush, 1, 8)
        self._of_flush = max(_SHORTEST, min(self._run(flush, 1, 8) for _ in range(_LEAST)) / 8)
        self.of_nothing = min(self._run(lambda: None, 1, 1) for _ in range(_LEAST))

    def times(self, call: Enqueue) -> tuple[Json, Json]:
        """Seconds of a call with a cold and with a warm L2 cache: median, minimum, runs, and calls of each run."""
        guess = max(_SHORTEST, self._run(call, 1, 1))
        begin = time.perf_counter()
        call()
        enqueuing = time.perf_counter() - begin
        self._run(lambda: None, 0, 1)  # waits for it
        calls = max(1, min(_MOST_CALLS, ceil(_BATCH / guess)))
        cold = self._repeat(_COLD, lambda: self._run(call, self._flushes(enqueuing), 1))
        warm = self._repeat(_WARM, lambda: self._run(call, self._flushes(enqueuing * (calls + 1)), calls, True))
        return _summary(cold, 1), _summary([one / calls for one in warm], calls)

    def _run(self, call: Enqueue, flushes: int, calls: int, warming: bool = False) -> float:
        """Seconds of some calls together; flushes, and a call that warms the cache, are not counted."""
        for _ in range(flushes):
            self._flush()
        if warming:
            call()
        self._begin()
        for _ in range(calls):
            call()
        self._end()
        return self._seconds()

    def _flushes(self, seconds: float) -> int:
        """How many keep the device busy for so long; one at least."""
        return max(1, min(_MOST_FLUSHES, 1 + ceil(seconds / self._of_flush)))

    def _repeat(self, most: int, run: Callable[[], float]) -> list[float]:
        found: list[float] = []
        begin = time.perf_counter()
        while len(found) < most and (len(found) < _LEAST or time.perf_counter() - begin < self._budget):
            found.append(run())
        return found


def _summary(seconds: list[float], calls: int) -> Json:
    middle = sorted(seconds)[(len(seconds) - 1) // 2 : len(seconds) // 2 + 1]
    return {"median": sum(middle) / len(middle), "minimum": min(seconds), "runs": len(seconds), "calls": calls}
