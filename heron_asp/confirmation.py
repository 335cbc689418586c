"""Which of the measured candidates is the best: the contenders are measured again, and compared with the peak."""

from __future__ import annotations

from collections.abc import Sequence

from heron_asp.errors import ExitCode, HeronError
from heron_asp.measure.device import Device
from heron_asp.measure.result import Measurement
from heron_asp.outcome import ABOVE_PEAK, Outcome
from heron_asp.space import Candidate

CONTENDERS = 5  # candidates that are measured again, interleaved
TIE = 0.01  # a difference below this is noise
PEAKS = 8  # measurements of a peak that a busy machine hides
ROUNDS = 4  # of a suspect program and the peak in turn: faster in every one of them is an error
Done = Sequence[tuple[Candidate, Measurement]]


def ranking(done: Done) -> list[tuple[Candidate, float]]:
    """Candidates that were correct with the seconds of their trial, the fastest first."""
    ran = [(candidate, measurement.seconds) for candidate, measurement in done if measurement.seconds is not None]
    return sorted(ran, key=lambda pair: pair[1])


def confirm(outcome: Outcome, device: Device, done: Done, rounds: int, contenders: int = CONTENDERS) -> None:
    """Measures the best few again, interleaved, and chooses among them.

    What counts is the least time that was ever measured of a candidate, in its trial or now: other work on the machine
    only ever adds to a time, so a candidate that was disturbed in one of them is still told right by the other.

    Args:
        outcome: gets the best, its seconds and its ties.
        device: measures.
        done: all trials.
        rounds: how often each contender is measured; 0 leaves that out.
        contenders: how many are measured.

    Raises:
        HeronError: no candidate was correct.
    """
    best = ranking(done)[:contenders]
    times = device.compare([candidate for candidate, _ in best], rounds) if rounds and best else None
    if times is None:
        choose(outcome, best)
    else:
        choose(outcome, [(one, min(before, *now)) for (one, before), now in zip(best, times, strict=True) if now])
    if outcome.best is None:
        first = next((measurement.error for _, measurement in done if measurement.error), "the space has no program")
        raise HeronError("no candidate survived", first, ExitCode.NO_SURVIVOR)


def choose(outcome: Outcome, times: Sequence[tuple[Candidate, float]]) -> None:
    """Tells an outcome the best and its ties; nothing if there is no candidate."""
    ordered = sorted(times, key=lambda pair: pair[1])
    if ordered:
        outcome.best, outcome.seconds = ordered[0]
        outcome.ties = [candidate for candidate, seconds in ordered[1:] if seconds < ordered[0][1] * (1 + TIE)]


def higher(device: Device, peak: float | None) -> float | None:
    """The peak, measured once more: the highest so far."""
    again = device.peak()
    return again if peak is None or again is None else max(peak, again)


def compare_with_peak(outcome: Outcome, device: Device) -> str:
    """Compares the best program with the peak: what is wrong if it is truly above it, empty if it is not.

    A busy machine may have hidden the peak: it is measured again, then in turn with the program.
    """
    if outcome.best is None or outcome.seconds is None or outcome.peak is None:
        return ""
    operations = outcome.task.useful_operations
    speed = operations / outcome.seconds
    for _ in range(PEAKS):
        if speed <= outcome.peak * (1 + ABOVE_PEAK):
            return ""
        outcome.peak = max(outcome.peak, device.peak() or 0.0)
    for _ in range(ROUNDS):
        ((seconds,),) = device.compare([outcome.best], 1)
        now = device.peak() or 0.0
        outcome.peak = max(outcome.peak, now)
        if operations / seconds <= now * (1 + ABOVE_PEAK):
            outcome.warning = f"the machine was too busy to measure the peak (best {outcome.peak / 1e9:.0f} GOP/s)"
            outcome.peak = None
            return ""
    return (
        f"the best program runs at {speed / 1e9:.0f} GOP/s, above the measured peak of {outcome.peak / 1e9:.0f}: "
        "one of the two kernels is wrong"
    )
