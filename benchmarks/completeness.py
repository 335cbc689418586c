"""Is the space complete and sound? Does it refuse anything that would run, or allow anything that would not?

    python benchmarks/completeness.py                every problem; exits with 1 on any failure
    python benchmarks/completeness.py --plant        and then plants faults in the rules: each must be noticed
    python benchmarks/completeness.py --update       writes anew what each rule of thumb refuses; review it like code

For small problems the knobs range freely, no constraint asked: every assignment is scheduled, compiled, run once on
random and adversarial inputs and checked. The survivors are compared with the space.

    of        assignments of all knobs over all their values: tiles from {1, 2, 3, 4, 8, 16, 32, extent, extent + 1} and
              the unit; the extents that the rules offer, the axis' own and one more; copies at every level
    tried     those that are tried: a union of products, and what is around members of the space
    survive   are built, hold the instruction, run and are right
    space     are in the space; in brackets, how many different programs that is
    form      survive and are refused by a must, while the same program is in the space in another form
    guarded   survive by a condition that TVM puts around a split whose tiles do not multiply to the extent. The rules'
              `split` means tiles that do, so these are no programs of theirs
    must      programs that survive and that a must refuses: a failure
    fail      in the space, and do not survive: a failure
    thumbs    survivors that rules of thumb refuse; `--relax` admits each of them

The machine is the target's, with so small a cache and so few registers that its rules of thumb bind on small problems;
their numbers say nothing of what runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from heron_asp import Task, operator, resolve_target
from heron_asp.completeness import Evidence, Outcome, Planter, check, gather
from heron_asp.host import require_host
from heron_asp.target import Memory, Target
from heron_asp.task import available_threads

EXPECTED = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Problem:
    """A small operator on a small machine.

    Attributes:
        cache: bytes that its outer cache may hold.
        accumulators: registers that may hold sums.
    """

    name: str
    dtype: str
    shape: dict[str, int]
    threads: int = 1
    cache: int = 200
    accumulators: int = 8

    def task(self, target: Target) -> Task:
        """The operator on the machine."""
        machine = small(target, self.cache, self.accumulators)
        return Task(operator(self.name, self.shape, self.dtype), machine, self.threads)

    @property
    def label(self) -> str:
        """The problem in a few words."""
        said = ",".join(f"{key}={value}" for key, value in self.shape.items())
        return f"{self.name} {said} {self.dtype}" + (f" {self.threads} threads" if self.threads > 1 else "")


PROBLEMS = [
    Problem("gemm", "u8s8s32", {"m": 4, "n": 32, "k": 8}),
    Problem("gemm", "u8s8s32", {"m": 3, "n": 20, "k": 6}),
    Problem("gemm", "u8s8s32", {"m": 17, "n": 16, "k": 4}, accumulators=20),
    Problem("gemm", "u8s8s32", {"m": 2, "n": 64, "k": 4}, threads=2),
    Problem("gemm", "bf16bf16f32", {"m": 4, "n": 16, "k": 4}),
    Problem("gemv", "u8s8s32", {"m": 32, "k": 12}),
    Problem("batch_matmul", "u8s8s32", {"batch": 2, "m": 2, "n": 16, "k": 8}),
]


def small(target: Target, cache: int, accumulators: int) -> Target:
    """The machine with numbers that bind on small problems."""
    machine, pays = target.machine, dict(target.pays)
    for name, value in {"l2": cache, "latency": 2, "registers": 0}.items():
        if name in pays:
            pays[name] = pays[name].model_copy(update={"value": value})
    limits = {**machine.limits, "vector_registers": accumulators}
    memories = (Memory(name="l1", capacity=50), Memory(name="l2", capacity=100))
    return replace(target, machine=machine.model_copy(update={"memories": memories, "pays": pays, "limits": limits}))


def main() -> None:
    """Tries, compares, prints; plants where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="zen4")
    parser.add_argument("--most", type=int, default=1500, help="assignments of a problem, about (%(default)s)")
    parser.add_argument("--only", default="", help="problems whose name contains this text")
    parser.add_argument("--workers", type=int, default=available_threads())
    parser.add_argument("--plant", action="store_true")
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    target = resolve_target(arguments.target)
    require_host(target)
    stored = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    known = stored.get("pays", {}) if stored.get("most") == arguments.most else {}
    print(f"{'problem':<42}{'of':>9}{'tried':>7}{'survive':>9}{'space':>12}{'form':>6}{'guarded':>9}{'must':>6}{'fail':>6}"
          f"{'s':>6}  thumbs")  # fmt: skip
    failed = False
    gathered: list[tuple[Problem, Evidence, dict[str, int]]] = []
    for problem in PROBLEMS:
        if arguments.only not in problem.label:
            continue
        start = time.monotonic()
        evidence = gather(problem.task(target), arguments.most, arguments.workers)
        finding = check(evidence)
        thumbs = dict(sorted(finding.pays.items()))
        fail = sum(finding.failing.values()) + sum(finding.hollow.values())
        print(f"{problem.label:<42}{finding.whole:>9.0e}{finding.tried:>7}{finding.survived:>9}"
              f"{f'{finding.members} ({finding.programs})':>12}{finding.forms:>6}{finding.guarded:>9}"
              f"{sum(finding.must.values()):>6}{fail:>6}{time.monotonic() - start:>6.0f}  "
              + ", ".join(f"{name} {many}" for name, many in thumbs.items()), flush=True)  # fmt: skip
        expected = None if arguments.update else known.get(problem.label)
        for failure in finding.failures(expected):
            print(f"  FAILURE: {failure}")
            failed = True
        gathered.append((problem, evidence, thumbs))
    if arguments.update:
        pays = {**known, **{problem.label: thumbs for problem, _, thumbs in gathered}}
        EXPECTED.write_text(json.dumps({"most": arguments.most, "pays": pays}, indent=2) + "\n")
    elif not known:
        print(
            f"what rules of thumb refuse is not compared: {EXPECTED.name} was written for --most {stored.get('most')}"
        )
    if arguments.plant:
        failed |= plant([(evidence, known.get(problem.label, thumbs)) for problem, evidence, thumbs in gathered])
    sys.exit(1 if failed else 0)


def plant(gathered: list[tuple[Evidence, dict[str, int]]]) -> bool:
    """Plants every fault in every problem and prints what came of it; whether a kind of fault was never noticed."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    said: dict[tuple[str, str], str] = {}
    needless: set[tuple[str, str]] = set()
    for evidence, expected in gathered:
        planter = Planter(evidence, expected)
        for fault in planter.faults():
            found, failure = planter.outcome(fault)
            counts.setdefault(fault.kind, Counter())[str(found)] += 1
            if failure:
                said.setdefault(fault.kind, failure)
            if fault.loosens or fault.unread:
                needless.add(fault.kind)
    print(f"\n{'wrong rule':<28}{'how':<14}{'noticed':>8}{'missed':>8}{'no effect':>11}  as, for example")
    failed = False
    for kind, count in sorted(counts.items()):
        bad = not count[Outcome.NOTICED] and kind not in needless
        failed |= bad
        example = "NEVER NOTICED" if bad else said.get(kind, "need not be")[:110]
        print(f"{kind[0]:<28}{kind[1]:<14}{count[Outcome.NOTICED]:>8}{count[Outcome.MISSED]:>8}"
              f"{count[Outcome.NO_EFFECT]:>11}  {example}")  # fmt: skip
    return failed


if __name__ == "__main__":
    main()
