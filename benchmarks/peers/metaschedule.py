"""MetaSchedule of TVM 0.27 on int8 workloads whose weights are packed ahead, with what keeps it from working mended.

Its own search, cost model, schedule rules and postprocessors, driven candidate by candidate. Every candidate is built,
checked and timed in a forked process by the limits of our own device, so both tuners pay the same for a trial.

Mended, since otherwise nothing or little of it would run:

- `import tvm.s_tir.tensor_intrin` takes 20 to 36 s for the intrinsics of GPUs; only those of x86 are imported.
- its `dot_16x4_vnni` does not compile with LLVM 22; ours, made from the target's data, takes its name.
- it vectorizes the loop around a tensorized block, which fails to build (the rules `stock` leave that as it is).
- its cost model answers at random for the first 100 trials; here it is asked from the second batch of 64 on. Batches
  of 16 and 8 were tried: two and three times the time, and no faster program after 64 trials.

One run, in a process of its own, is `python -m peers.metaschedule REQUEST.json` in `benchmarks`; see `Request`.
"""

from __future__ import annotations

import importlib
import json
import logging
import resource
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.contest import PackedKernel
from peers.packed import Packed, packed

from heron_asp import resolve_target
from heron_asp.child import Child, Report
from heron_asp.errors import HeronError
from heron_asp.measure.device import LEAST
from heron_asp.measure.kernel import tvm_target, use_threads
from heron_asp.measure.result import Limits, Measurement, Status
from heron_asp.schedule.tensor_intrin import register
from heron_asp.target import Target
from heron_asp.task import available_threads

CLOCKS: dict[str, Callable[[], float]] = {
    "wall": time.monotonic,
    "cpu": lambda: sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)),
}
KEPT = 5  # of the fastest programs so far: each that is among them when it is measured
RULES = ("stock", "mended")
INVALID = 1e10  # seconds of a program that failed, as MetaSchedule records it
LONGEST = 100_000  # trials: the clock ends a run before that
INTRINSIC = "dot_16x4_vnni"  # the name that MetaSchedule's rules ask for


@dataclass(frozen=True)
class Request:
    """One run.

    Attributes:
        operator: with `shape`, the workload, see `packed`.
        target: a machine's name or file.
        trials: at least.
        seconds: of tuning, at least.
        rules: `stock`: as the target asks for; `mended`: no rule vectorizes, nor parallelizes for one thread.
        batch: candidates between two updates of the cost model.
        warmup: trials before the cost model is asked.
        clock: what counts as seconds: `wall`, or `cpu` of the run and of all that it forks.
        out: folder of `rows.jsonl` and of the fastest programs.
    """

    operator: str
    shape: dict[str, int]
    target: str
    threads: int
    trials: int
    seconds: float
    seed: int
    rules: str
    batch: int
    warmup: int
    clock: str
    out: str


@dataclass(frozen=True)
class Row:
    """A trial: its measurement, and the seconds from the start of the run to the trial's end."""

    number: int
    elapsed: float
    measurement: Measurement

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it back."""
        return {"trial": self.number, "elapsed": self.elapsed, **self.measurement.to_json()}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Row:
        """Reads what `to_json` wrote."""
        return Row(data["trial"], data["elapsed"], Measurement.from_json(data))


def rows_file(out: Path) -> Path:
    """The trials of a run, a JSON object a line."""
    return out / "rows.jsonl"


def program_file(out: Path, number: int) -> Path:
    """The scheduled module of a trial that was among the fastest when it was measured."""
    return out / f"program-{number}.json"


def read_rows(out: Path) -> list[Row]:
    """All trials of a run; half a line at the end is a write that was interrupted."""
    if not rows_file(out).exists():
        return []
    return [Row.from_json(json.loads(line)) for line in rows_file(out).read_text().split("\n")[:-1]]


def mend(target: Target) -> None:
    """Makes MetaSchedule importable in a second, and its VNNI intrinsic one that compiles.

    To be called before anything else imports `tvm.s_tir.meta_schedule`.
    """
    import tvm.s_tir as s_tir
    from tvm.s_tir import TensorIntrin

    name = "tvm.s_tir.tensor_intrin"
    package = types.ModuleType(name)
    package.__path__ = [str(Path(s_tir.__file__).parent / "tensor_intrin")]
    sys.modules[name] = package
    s_tir.tensor_intrin = package
    importlib.import_module(f"{name}.x86")
    ours = TensorIntrin.get(register(target.intrinsics["vpdpbusd"], "straight"))
    TensorIntrin.register(INTRINSIC, ours.desc, ours.impl, override=True)


def rules(kind: str, context: Callable[[Any], Any], threads: int) -> Any:
    """The space generator: MetaSchedule's rules for the target, mended where asked for.

    Args:
        kind: `stock` or `mended`.
        context: makes a tune context from a space generator, which asks the target for its rules.
        threads: of a kernel.
    """
    from tvm.s_tir import meta_schedule as ms

    stock = ms.space_generator.PostOrderApply()
    if kind == "stock":
        return stock
    chosen = list(context(stock).space_generator.sch_rules)
    which = [type(rule).__name__ for rule in chosen].index("ParallelizeVectorizeUnroll")
    chosen[which] = ms.schedule_rule.ParallelizeVectorizeUnroll(
        max_jobs_per_core=16 if threads > 1 else -1,
        max_vectorize_extent=-1,
        unroll_max_steps=[0, 16, 64, 512],
        unroll_explicit=True,
    )
    return ms.space_generator.PostOrderApply(sch_rules=chosen)


class Harness:
    """Builds, checks and times programs of a workload as `LocalDevice` does with ours: each in a process of its own.

    Attributes:
        width: how many are built at once.
    """

    def __init__(self, workload: Packed, target: Target, threads: int, limits: Limits) -> None:
        self.target = tvm_target(target, threads)
        self.threads = threads
        self.limits = limits
        self.cases = workload.cases()
        self.width = available_threads()

    def start(self, module: Any) -> Child:
        """Starts building a program; the process then waits for the least time so far, in seconds."""

        def work(report: Report) -> None:
            kernel = PackedKernel(module, self.target, self.cases)
            best = report("build", True)
            use_threads(self.threads)
            wrong = kernel.wrong()
            report("run", ("wrong", wrong) if wrong else self._timed(kernel, best))

        return Child(work, [self.limits.build, self.limits.run], pause="build")

    def _timed(self, kernel: PackedKernel, best: float | None) -> tuple[str, list[float]]:
        stopwatch = kernel.stopwatch(self.threads, self.limits.repeat_ms)
        if best is not None and stopwatch.guess > self.limits.early * best:
            return "early", [stopwatch.guess]
        affordable = int(self.limits.timing / max(stopwatch.guess, self.limits.repeat_ms / 1e3))
        runs = [stopwatch.guess]
        while len(runs) < max(LEAST, min(self.limits.repeats, affordable)):
            runs.append(stopwatch.seconds())
            if best is not None and len(runs) >= LEAST and min(runs) > self.limits.clearly * best:
                break
        return "timed", runs

    def finish(self, child: Child, best: float | None) -> Measurement:
        """Checks and times what was built; nothing else may be building."""
        child.go(best)
        outcome = child.outcome()
        build, run = outcome.seconds("build"), outcome.seconds("run")
        stage = Status.RUNTIME if outcome.value("build") else Status.COMPILE
        if outcome.timed_out:
            return Measurement(Status.TIMEOUT, error=f"{stage} took too long", build_seconds=build)
        if outcome.value("run") is None:
            said = outcome.value("error") or f"signal {outcome.signal}: {outcome.stderr}"
            lines = [line.strip() for line in str(said).splitlines() if line.strip()]
            telling = [line for line in lines if "rror" in line] or lines
            return Measurement(stage, error=telling[-1][:300], build_seconds=build)
        kind, value = outcome.value("run")
        if kind == "wrong":
            return Measurement(Status.CORRECTNESS, error=value, build_seconds=build, run_seconds=run)
        return Measurement(
            Status.CORRECT, min(value), tuple(value), early=kind == "early", build_seconds=build, run_seconds=run
        )


def search(request: Request) -> Iterator[tuple[Row, Any]]:
    """Tunes; yields each trial with its scheduled module until both the trials and the seconds are spent."""
    from tvm.s_tir import meta_schedule as ms

    now = CLOCKS[request.clock]
    start = now()
    workload = packed(request.operator, request.shape)
    harness = Harness(workload, resolve_target(request.target), request.threads, Limits())
    function = workload.prim_func()

    def context(space: Any) -> Any:
        return ms.TuneContext(
            mod=function,
            target=harness.target,
            space_generator=space,
            search_strategy="evolutionary",
            num_threads=available_threads(),
            rand_state=request.seed,
            logger=logging.getLogger("metaschedule"),
        )

    tuned = context(rules(request.rules, context, request.threads))
    database = ms.database.MemoryDatabase()
    known = database.commit_workload(tuned.mod)
    model = ms.cost_model.XGBModel(num_warmup_samples=request.warmup, num_tuning_cores=available_threads())
    tuned.pre_tuning(LONGEST, request.batch, database=database, cost_model=model)
    number, best = 0, None
    while candidates := tuned.generate_measure_candidates():
        results = []
        for first in range(0, len(candidates), harness.width):
            if number >= request.trials and now() - start >= request.seconds:
                tuned.post_tuning()
                return
            some = candidates[first : first + harness.width]
            children = [harness.start(candidate.sch.mod) for candidate in some]
            for child in children:  # a build would disturb a measurement on the next core
                child.reached("build")
            for candidate, child in zip(some, children, strict=True):
                number += 1
                measured = harness.finish(child, best)
                if measured.seconds is not None:
                    best = min(best or measured.seconds, measured.seconds)
                seconds = [measured.seconds] if measured.seconds is not None else None
                results.append(ms.runner.RunnerResult(seconds, measured.error or None))
                record = ms.database.TuningRecord(
                    candidate.sch.trace, known, seconds or [INVALID], harness.target, candidate.args_info
                )
                database.commit_tuning_record(record)
                yield Row(number, now() - start, measured), candidate.sch.mod
        model.update(tuned, candidates, results)
        tuned.notify_runner_results(candidates, results)


def run(request: Request) -> None:
    """Tunes; writes a row a trial, and the program of each that is among the fastest so far."""
    import tvm
    import xgboost  # noqa: F401 - imports are not part of the time

    mend(resolve_target(request.target))
    out = Path(request.out)
    fastest: list[float] = []
    with rows_file(out).open("a") as rows:
        for row, module in search(request):
            seconds = row.measurement.seconds
            if seconds is not None:
                fastest = sorted([*fastest, seconds])[:KEPT]
                if seconds in fastest:
                    program_file(out, row.number).write_text(tvm.ir.save_json(module))
            rows.write(json.dumps(row.to_json()) + "\n")
            rows.flush()


if __name__ == "__main__":
    try:
        run(Request(**json.loads(Path(sys.argv[1]).read_text())))
    except HeronError as error:
        sys.exit(" ".join(str(error).split()))
