"""The read channel of the memory: five clients with fixed priority share one bus.

Cycles are those of the RTL's modules. A client keeps one request; the engine issues one a cycle, the client with the
lowest number first, as long as fewer than 16 are on their way and no request's last beat arrives in that cycle. The
memory serves requests in order, one beat a cycle; a request that finds its queue empty waits 16 cycles first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count

_LATENCY = 17  # from issue into an empty queue to the cycle in which the memory takes the request
_OUTSTANDING = 16


class Client(IntEnum):
    """Who reads, in order of priority."""

    FETCH = 0
    UOP = 1
    INP = 2
    WGT = 3
    ACC = 4


class Clock:
    """Calls functions in order of their cycles."""

    def __init__(self) -> None:
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._number = count()

    def at(self, cycle: int, call: Callable[[int], None]) -> None:
        """Calls `call(cycle)` when all of the cycles before have passed."""
        heappush(self._events, (cycle, next(self._number), call))

    def run(self) -> None:
        """Runs until nothing is left to do."""
        while self._events:
            cycle, _, call = heappop(self._events)
            call(cycle)


Beats = tuple[int, int]  # first and last cycle in which the memory delivers a request's beats


class ReadChannel:
    """Serves the requests of five clients.

    Args:
        clock: calls back.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[int, tuple[int, int, Callable[[int, Beats], None]]] = {}  # client: valid from, beats, call
        self._last_beats: deque[int] = deque()
        self._taken = -1  # cycle in which the memory took the latest request
        self._free = 0  # first cycle in which it can take another
        self._next_try = -1

    def request(self, cycle: int, client: Client, beats: int, issued: Callable[[int, Beats], None]) -> None:
        """Puts a request into the client's empty slot in `cycle`; calls `issued(cycle, beats)` when it leaves it."""
        self._waiting[client] = (cycle + 1, beats, issued)
        self._try_at(cycle + 1)

    def _try_at(self, cycle: int) -> None:
        if self._next_try < 0 or cycle < self._next_try:
            self._next_try = cycle
            self._clock.at(cycle, self._try)

    def _try(self, cycle: int) -> None:
        if cycle != self._next_try:
            return  # an earlier try took its place
        self._next_try = -1
        ready = [client for client, (valid, _, _) in self._waiting.items() if valid <= cycle]
        if not ready:
            return
        ends = self._last_beats
        while ends and ends[0] < cycle:
            ends.popleft()
        if ends and ends[0] == cycle:
            self._try_at(cycle + 1)
        elif len(ends) >= _OUTSTANDING:
            self._try_at(ends[0] + 1)
        else:
            client = min(ready)
            _, beats, issued = self._waiting.pop(client)
            taken = self._free if cycle <= self._taken else max(self._free, cycle + _LATENCY)
            self._taken, self._free = taken, taken + beats
            ends.append(taken + beats)
            if self._waiting:
                self._try_at(cycle + 1)
            issued(cycle, (taken + 1, taken + beats))
