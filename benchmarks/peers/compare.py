"""Compares the sides on one case: outputs first, then rounds in which each side is timed in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from peers.machine import Probe
from peers.native import HERE, Array, Clock, Side, Turn, aligned, calls_of, compile_shared, take_turn
from peers.onednn import OneDnn, build_onednn
from peers.workload import Workload

from heron_asp.child import Report, run_in_child
from heron_asp.errors import HeronError, InternalError

_MINUTES = 20  # after which a case is given up
_PEAK_STEPS = 500_000  # of the peak that is measured in every round: about 2 ms
_OTHER_ROUNDS = 5
_PATIENCE = 3  # times as many rounds as asked for, at most, until so many were quiet
_NEARLY = 0.9  # of the best peak: a processor that is shared with another machine's load gives half
FEW = 3  # quiet rounds below which a median says less than the best round of each side

Open = Callable[[Clock, Array, Array], Side]


@dataclass(frozen=True)
class Timing:
    """How a side did.

    Attributes:
        seconds: of one call in the best round.
        rounds: seconds of one call in each round; of a side that is timed apart, in each of its turns.
        implementation: which of its programs the side chose.
    """

    seconds: float
    rounds: tuple[float, ...]
    implementation: str


@dataclass(frozen=True)
class Comparison:
    """What came of a case.

    Attributes:
        timings: by side.
        errors: why a side has no timing.
        peak: operations a second of dot products, the best of the rounds.
        quiet: for each round, whether others left the machine alone: the peak was nearly its best, and every side had
            a block in which no processor was taken away from it.
    """

    timings: Mapping[str, Timing] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    peak: float | None = None
    quiet: tuple[bool, ...] = ()

    @property
    def busy(self) -> bool:
        """Whether too few rounds were quiet for a median over them."""
        return sum(self.quiet) < FEW

    def ratio(self, side: str, other: str) -> float | None:
        """How many times as fast a side is as another.

        The median over the quiet rounds; where these are few, or one side was timed apart, that of the best ones.
        """
        first, second = self.timings.get(side), self.timings.get(other)
        if first is None or second is None:
            return None
        if self.busy or not len(first.rounds) == len(second.rounds) == len(self.quiet):
            return second.seconds / first.seconds
        pairs = zip(first.rounds, second.rounds, self.quiet, strict=True)
        return median(theirs / mine for mine, theirs, quiet in pairs if quiet)


class Bench:
    """Compiles what the comparisons need.

    Args:
        folder: where.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.clock = compile_shared(HERE / "clock.c", folder / "clock.so")
        self.probe = Probe(folder)
        self.missing = ""
        try:
            self.onednn: Path | None = build_onednn(folder)
        except HeronError as error:
            self.onednn, self.missing = None, str(error)

    def compare(
        self, workload: Workload, threads: int, sides: Mapping[str, Open], others: Mapping[str, Open], rounds: int
    ) -> Comparison:
        """Compares in a process of its own, which a crash ends, and nothing else.

        Args:
            workload: what is computed.
            threads: how many each side may use.
            sides: timed in turn: each makes its call from a clock, the activations and the weights.
            others: timed after them, each by itself, since threads that they leave spinning would disturb.
            rounds: how often.
        """

        def work(report: Report) -> None:
            report("comparison", _compare(self, workload, threads, sides, others, rounds))

        outcome = run_in_child(work, [60.0 * _MINUTES])
        found = outcome.value("comparison")
        if isinstance(found, Comparison):
            return found
        said = outcome.value("error") or (f"no end after {_MINUTES} minutes" if outcome.timed_out else "")
        said = said or f"killed by signal {outcome.signal}: {outcome.stderr.strip()[-300:]}"
        return Comparison(errors=dict.fromkeys((*sides, *others), said))


def _compare(
    bench: Bench,
    workload: Workload,
    threads: int,
    sides: Mapping[str, Open],
    others: Mapping[str, Open],
    rounds: int,
) -> Comparison:
    clock = Clock(bench.clock)
    source, weights = map(aligned, workload.inputs(np.random.default_rng(0)))
    expected = workload.reference(source, weights)
    errors: dict[str, str] = {}
    ready = {
        name: side for name in sides if (side := _open(name, sides[name], clock, source, weights, expected, errors))
    }
    calls = {name: calls_of(side) for name, side in ready.items()}
    turns: list[dict[str, Turn]] = []
    peaks: list[float] = []
    while len(turns) < rounds or (sum(_quiet(turns, peaks)) < rounds and len(turns) < _PATIENCE * rounds):
        order = list(ready) if len(turns) % 2 else list(reversed(ready))
        turns.append({name: take_turn(ready[name], calls[name]) for name in order})
        peaks.append(bench.probe.peak(threads, _PEAK_STEPS))
    times = {name: [turn[name].seconds for turn in turns] for name in ready}
    _require_right(ready, expected, errors)
    for name, make in others.items():
        side = _open(name, make, clock, source, weights, expected, errors)
        if side is not None:
            ready[name], number = side, calls_of(side)
            times[name] = [take_turn(side, number).seconds for _ in range(_OTHER_ROUNDS)]
    timings = {
        name: Timing(min(times[name]), tuple(times[name]), side.implementation)
        for name, side in ready.items()
        if name not in errors
    }
    return Comparison(timings, errors, max(peaks, default=None), _quiet(turns, peaks))


def _quiet(turns: Sequence[Mapping[str, Turn]], peaks: Sequence[float]) -> tuple[bool, ...]:
    """For each round, whether others left the machine alone; see `Comparison`."""
    return tuple(
        peak > _NEARLY * max(peaks) and all(turn.undisturbed for turn in turned.values())
        for turned, peak in zip(turns, peaks, strict=True)
    )


def _open(
    name: str, make: Open, clock: Clock, source: Array, weights: Array, expected: Array, errors: dict[str, str]
) -> Side | None:
    """A side whose first result is right; None, and its error, otherwise."""
    try:
        side = make(clock, source, weights)
        wrong = _wrong(side, expected)
    except (HeronError, InternalError) as error:
        wrong = str(error)
    if wrong:
        errors[name] = wrong
        return None
    return side


def _wrong(side: Side, expected: Array) -> str:
    """What is wrong with the result of a call; empty if nothing is."""
    result, wanted = side.run(), side.expects(expected)
    if result.shape != wanted.shape:
        return f"the result is {result.shape} instead of {wanted.shape}"
    far = np.abs(result - wanted) > side.tolerance if side.tolerance else result != wanted
    count = int(np.count_nonzero(far))
    return f"{count} of {expected.size} elements are wrong" if count else ""


def _require_right(ready: Mapping[str, Side], expected: Array, errors: dict[str, str]) -> None:
    """Whether what was timed still computes."""
    for name, side in ready.items():
        wrong = _wrong(side, expected)
        if wrong:
            errors[name] = f"after the rounds, {wrong}"


def onednn(library: Path, workload: Workload, threads: int) -> Open:
    """Opens oneDNN."""
    return lambda clock, source, weights: OneDnn(library, clock, threads).call(workload, source, weights)
