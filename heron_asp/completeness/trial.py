"""Does a program run? Schedules, compiles, runs and checks many programs once, in forked batches.

Programs that begin alike share their schedule up to where they part, and a refusal there is a refusal of all of them.
Programs that are the same after lowering share one result. A crash or a hang costs its own program only; whatever fails
beside others fails again by itself before that is believed.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from heron_asp.child import Report, run_in_child
from heron_asp.errors import telling_line
from heron_asp.measure.data import Case, cases
from heron_asp.measure.kernel import build, lowered_hash, use_threads
from heron_asp.schedule.calls import Call
from heron_asp.schedule.replay import Program, begin, execute, replay, split_prepared
from heron_asp.task import Task

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
Calls = tuple[Call, ...]


@dataclass(frozen=True)
class Trial:
    """What became of a program.

    Attributes:
        error: why it does not survive; empty if it does.
        program: equal for programs that are the same after lowering; empty where TVM refuses the schedule.
    """

    error: str = ""
    program: str = ""

    @property
    def survived(self) -> bool:
        """Whether it was built, holds its instruction, ran and was right."""
        return not self.error


class Workshop:
    """Tries programs of one task; what was tried once is remembered.

    Args:
        task: operator, target and threads.
        workers: processes at once.
        seconds: how long a program may take.
    """

    def __init__(self, task: Task, workers: int = 2, seconds: float = 30.0) -> None:
        self.task = task
        self.workers = workers
        self.seconds = seconds
        self.scheduled: dict[Calls, Trial] = {}
        self.ran: dict[str, str] = {}

    @cached_property
    def _cases(self) -> list[Case]:
        return cases(self.task.operator)

    def trials(self, wanted: Sequence[Calls], mnemonics: Sequence[tuple[str, ...]]) -> list[Trial]:
        """Tries programs.

        Args:
            wanted: the calls of each.
            mnemonics: the instructions that the machine code of each must have.
        """
        self._schedule({calls for calls in wanted if calls not in self.scheduled})
        first: dict[str, tuple[Calls, tuple[str, ...]]] = {}
        for calls, needs in zip(wanted, mnemonics, strict=True):
            found = self.scheduled[calls]
            if found.survived and found.program not in self.ran:
                first.setdefault(found.program, (calls, needs))
        self._run(first)
        return [
            Trial(self.ran[found.program], found.program) if found.survived else found
            for found in (self.scheduled[calls] for calls in wanted)
        ]

    def _schedule(self, wanted: Iterable[Calls]) -> None:
        numbers: dict[Call, int] = {}
        order = sorted(wanted, key=lambda calls: [numbers.setdefault(call, len(numbers)) for call in calls])
        logger.debug("%d schedules", len(order))
        found = spread(lambda: _Walk(self.task).trial, order, self.workers, 400, self.seconds)
        self.scheduled |= zip(order, (one if isinstance(one, Trial) else Trial(one.why) for one in found), strict=True)

    def _run(self, first: dict[str, tuple[Calls, tuple[str, ...]]]) -> None:
        self._cases  # noqa: B018 - made here, not in every child
        names, jobs = list(first), list(first.values())
        logger.debug("%d programs", len(jobs))
        found = spread(self._runner, jobs, self.workers, 100, self.seconds)
        doubtful = [number for number, error in enumerate(found) if error]
        again = spread(self._runner, [jobs[number] for number in doubtful], self.workers, 1, self.seconds)
        for number, result in zip(doubtful, again, strict=True):
            found[number] = result
        self.ran |= zip(names, (one.why if isinstance(one, Lost) else one for one in found), strict=True)

    def _runner(self) -> Callable[[tuple[Calls, tuple[str, ...]]], str]:
        use_threads(self.task.threads)
        return self._why_not

    def _why_not(self, job: tuple[Calls, tuple[str, ...]]) -> str:
        """What is wrong with a program; empty if nothing is."""
        calls, mnemonics = job
        task = self.task
        try:
            program = replay(task.block, calls, task.target.intrinsics)
            built = build(task.operator, program, task.target, task.threads)
        except Exception as error:  # what TVM refuses is a result like any other
            return f"compile: {telling(error)}"
        assembly = built.assembly() if mnemonics else ""
        missing = [mnemonic for mnemonic in mnemonics if mnemonic not in assembly]
        if missing:
            return f"code: no {', '.join(missing)}"
        for case in self._cases:
            wrong = case.error(built.run(case.inputs))
            if wrong:
                return f"result: {wrong}"
        return ""


class _Walk:
    """Schedules one sequence of calls after another; what two of them begin with is executed once."""

    def __init__(self, task: Task) -> None:
        self.block = task.block
        self.intrinsics = task.target.intrinsics
        self.path: list[tuple[Call, Any, dict[str, Any]]] = []
        self.dead: Calls = ()
        self.error = ""

    def trial(self, calls: Calls) -> Trial:
        """The program that the calls make, not built yet; or why TVM refuses them."""
        if self.dead and calls[: len(self.dead)] == self.dead:
            return Trial(self.error)
        try:
            program = split_prepared(self._scheduled(calls).mod)
        except Exception as error:  # what TVM refuses is a result like any other
            self.dead, self.error = calls[: len(self.path) + 1], f"schedule: {telling(error)}"
            return Trial(self.error)
        try:
            return Trial("", program_key(program))
        except Exception as error:
            return Trial(f"lower: {telling(error)}")

    def _scheduled(self, calls: Calls) -> Any:
        same = 0
        while same < min(len(self.path), len(calls)) and self.path[same][0] == calls[same]:
            same += 1
        del self.path[same:]
        for call in calls[same:]:
            if not self.path:
                self.path.append((call, begin(self.block, call, error_render_level="fast"), {}))
                continue
            _, schedule, made = self.path[-1]
            schedule, made = schedule.copy(), dict(made)  # TVM copies no schedule that is tensorized: that is a leaf
            schedule = execute(schedule, call, made, self.intrinsics)
            self.path.append((call, schedule, made))
        return self.path[-1][1]


def program_key(program: Program) -> str:
    """Equal for programs that differ in names and loops of one step only."""
    import tvm_ffi

    packings = [program.module[packing.function] for packing in program.packings]
    return "-".join([lowered_hash(program), *(str(tvm_ffi.structural_hash(one)) for one in packings)])


def telling(error: Exception) -> str:
    """The line of TVM's long messages that says what is wrong, short enough to be counted by."""
    return telling_line(error)[:200]


@dataclass(frozen=True)
class Lost:
    """An item whose process ended or was too slow."""

    why: str


def spread(
    prepare: Callable[[], Callable[[Any], Result]], items: Sequence[Any], workers: int, batch: int, seconds: float
) -> list[Result | Lost]:
    """Calls a function on each item, in forked processes, each for a batch of neighbours.

    Args:
        prepare: makes the function, once in each process.
        items: inherited by the processes.
        workers: processes at once.
        batch: items of a process.
        seconds: how long an item may take.
    """
    batch = max(1, min(batch, -(-len(items) // (4 * workers))))
    starts = range(0, len(items), batch)
    readers, children = [], []
    for worker in range(workers):
        mine = [list(range(start, min(start + batch, len(items)))) for start in starts[worker::workers]]
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reader)
                found = [one for chunk in mine for one in _batch(prepare, items, chunk, seconds)]
                with os.fdopen(writer, "wb") as pipe:
                    pickle.dump(found, pipe)
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        readers.append(reader)
        children.append(child)
    results: dict[int, Result | Lost] = {}
    for reader in readers:
        with os.fdopen(reader, "rb") as pipe:
            results |= pickle.load(pipe)  # noqa: S301 - from our own child
    for child in children:
        os.waitpid(child, 0)
    return [results[number] for number in range(len(items))]


def _batch(
    prepare: Callable[[], Callable[[Any], Result]], items: Sequence[Any], chunk: list[int], seconds: float
) -> list[tuple[int, Result | Lost]]:
    """One batch; where its process ends early, the rest goes on in another."""
    found: list[tuple[int, Result | Lost]] = []
    while len(found) < len(chunk):
        rest = chunk[len(found) :]

        def work(report: Report, rest: list[int] = rest) -> None:
            function = prepare()
            for number in rest:
                report("item", function(items[number]))

        outcome = run_in_child(work, [seconds])
        results = [value for name, value, _ in outcome.reports if name == "item"]
        found += zip(rest, results, strict=False)
        if len(results) < len(rest):
            said = outcome.value("error") or outcome.stderr.strip()[-200:]
            why = f"slow: more than {seconds:g} s" if outcome.timed_out else f"crash: signal {outcome.signal}: {said}"
            found.append((rest[len(results)], Lost(why)))
    return found
