"""Rows of the comparison as they are written to JSON, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import exp, log
from statistics import median
from typing import Any

from peers.compare import Comparison, Timing
from peers.interpreted import NUMPY, ONNXRUNTIME
from peers.machine import Machine, bound
from peers.onednn import NAME as ONEDNN
from peers.ours import NAME as OURS
from peers.suite import Case

TIE = 0.02
CAP = 4.0  # no single case shall carry the mean
_REFERENCE = "ref"  # implementations of oneDNN that are there to be right, not to be fast
_OUTSIDE = ("scan",)  # operators that vendors' libraries have under other names only

UNITS = {
    "gops": "billions of operations a second in the best round, products with padding counted, as is usual",
    "seconds": "of one call in the best round",
    "ratio": "how many times as fast as oneDNN: the median over the quiet rounds; ratio_best where these are few",
    "ratio_best": "the same from the best round of each side",
    "ratio_onnxruntime": "how many times as fast as onnxruntime, which is timed apart and called from Python",
    "share_of_peak": "operations without padding in the best round, as a share of the machine's peak of dot products",
    "bound": "what limits any program: compute, call, or the level of memory from which most time is spent reading",
    "share_of_bound": "the least possible time as a share of the time",
    "quiet_rounds": "rounds in which others left the machine alone; fewer than 3 are few",
    "in_means": "false where oneDNN runs its reference implementation, or has the operator under another name",
}


@dataclass(frozen=True)
class SideRow:
    """How a side did; see `UNITS`."""

    gops: float
    seconds: float
    share_of_peak: float
    share_of_bound: float
    implementation: str


@dataclass(frozen=True)
class Row:
    """A case on a number of threads; see `UNITS`. What could not be had is None, and `errors` says why."""

    case: str
    operator: str
    shape: dict[str, int]
    threads: int
    count: int
    operations: int
    trials: int | None
    sides: dict[str, SideRow]
    ratio: float | None
    ratio_best: float | None
    ratio_onnxruntime: float | None
    bound: str
    bound_seconds: float
    quiet_rounds: int
    busy: bool
    in_means: bool
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Faster, tie or slower; empty without a ratio."""
        if self.ratio is None:
            return ""
        return "tie" if abs(self.ratio - 1) <= TIE else "faster" if self.ratio > 1 else "slower"


@dataclass(frozen=True)
class Found:
    """A case that was compared.

    Attributes:
        case: what.
        threads: how many each side might use.
        comparison: what came of it.
        trials: that ours was tuned with; None if it was not.
        errors: of sides that were not compared.
    """

    case: Case
    threads: int
    comparison: Comparison
    trials: int | None
    errors: Mapping[str, str]


def row_of(found: Found, machine: Machine) -> Row:
    """What came of a case, on a machine that is worth so much."""
    case, comparison = found.case, found.comparison
    workload = case.workload
    limit = bound(workload, machine)

    def side(timing: Timing) -> SideRow:
        return SideRow(
            gops=workload.operations / timing.seconds / 1e9,
            seconds=timing.seconds,
            share_of_peak=workload.useful_operations / timing.seconds / machine.peak,
            share_of_bound=limit.seconds / timing.seconds,
            implementation=timing.implementation,
        )

    sides = {name: side(timing) for name, timing in comparison.timings.items()}
    ratio = comparison.ratio(OURS, ONEDNN)
    both = OURS in sides and ONEDNN in sides
    reference = both and sides[ONEDNN].implementation.startswith(_REFERENCE)
    return Row(
        case=case.name,
        operator=case.operator,
        shape=dict(case.shape),
        threads=found.threads,
        count=case.count,
        operations=workload.operations,
        trials=found.trials,
        sides=sides,
        ratio=ratio,
        ratio_best=sides[ONEDNN].seconds / sides[OURS].seconds if both else None,
        ratio_onnxruntime=comparison.ratio(OURS, ONNXRUNTIME),
        bound=limit.name,
        bound_seconds=limit.seconds,
        quiet_rounds=sum(comparison.quiet),
        busy=both and comparison.busy,
        in_means=ratio is not None and not reference and case.operator not in _OUTSIDE,
        errors={**comparison.errors, **found.errors},
    )


@dataclass(frozen=True)
class Summary:
    """What the rows of a number of threads come to.

    Attributes:
        threads: how many.
        cases: how many rows.
        compared: how many have a ratio that counts.
        mean: geometric mean of the ratios, each capped at `CAP`; None without any.
        median: of the ratios.
        worst: the least ratio, and its case.
        faster: how many are faster by more than `TIE`.
        ties: how many are within it.
        slower: how many are slower by more.
        failed: cases with an error of either side.
        outside: cases that were compared and do not count.
        busy: cases during which others used the machine.
    """

    threads: int
    cases: int
    compared: int
    mean: float | None
    median: float | None
    worst: float | None
    worst_case: str
    faster: int
    ties: int
    slower: int
    failed: tuple[str, ...]
    outside: tuple[str, ...]
    busy: tuple[str, ...]


def summary(rows: Sequence[Row], threads: int) -> Summary:
    """What the rows of a number of threads come to."""
    mine = [row for row in rows if row.threads == threads]
    counted = [(row.ratio, row) for row in mine if row.in_means and row.ratio is not None]
    ratios = [ratio for ratio, _ in counted]
    worst, worst_row = min(counted, key=lambda pair: pair[0]) if counted else (None, None)
    verdicts = [row.verdict for _, row in counted]
    return Summary(
        threads=threads,
        cases=len(mine),
        compared=len(counted),
        mean=exp(sum(log(min(ratio, CAP)) for ratio in ratios) / len(ratios)) if ratios else None,
        median=median(ratios) if ratios else None,
        worst=worst,
        worst_case=worst_row.case if worst_row else "",
        faster=verdicts.count("faster"),
        ties=verdicts.count("tie"),
        slower=verdicts.count("slower"),
        failed=tuple(row.case for row in mine if {OURS, ONEDNN} & set(row.errors)),
        outside=tuple(row.case for row in mine if row.ratio is not None and not row.in_means),
        busy=tuple(row.case for row in mine if row.busy),
    )


@dataclass(frozen=True)
class Total:
    """A network: the seconds of its layers, each as often as it occurs.

    Attributes:
        threads: how many.
        ours: seconds of all layers that both sides ran.
        onednn: of the same layers.
        missing: layers that one side did not run; they are in neither sum.
    """

    threads: int
    ours: float
    onednn: float
    missing: tuple[str, ...]


def total(rows: Sequence[Row], threads: int) -> Total:
    """The time of a network's layers."""
    mine = [row for row in rows if row.threads == threads]
    ran = [row for row in mine if row.ratio is not None]
    return Total(
        threads=threads,
        ours=sum(row.count * row.sides[OURS].seconds for row in ran),
        onednn=sum(row.count * row.sides[ONEDNN].seconds for row in ran),
        missing=tuple(row.case for row in mine if row.ratio is None),
    )


def to_json(
    rows: Sequence[Row], machines: Mapping[int, Machine], versions: Mapping[str, str], network: str | None
) -> dict[str, Any]:
    """The JSON object of `rows.json`."""
    return {
        "format": 1,
        "units": UNITS,
        "versions": dict(versions),
        "machines": [asdict(machine) for machine in machines.values()],
        "rows": [asdict(row) for row in rows],
        "summaries": [asdict(summary(rows, threads)) for threads in machines],
        "network": network,
        "totals": [asdict(total(rows, threads)) for threads in machines] if network else [],
        "others": [ONNXRUNTIME, NUMPY],
    }
