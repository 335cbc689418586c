"""Tunes the cases within a budget, continues what was begun, and exports what was found."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heron_asp import LocalDevice, RunDirectory, Task, TuneOptions, tune
from heron_asp.errors import HeronError, InternalError
from heron_asp.library import Manifest, export
from heron_asp.operators import Operator
from heron_asp.runs import load_run
from heron_asp.target import Target

_SEED = 1
Key = tuple[str, int]  # an operator's label, a number of threads


@dataclass(frozen=True)
class Exported:
    """A library with the kernel of a case.

    Attributes:
        folder: what `export` wrote.
        name: the library's name.
        manifest: what it contains.
    """

    folder: Path
    name: str
    manifest: Manifest


class Tuner:
    """Tunes operators, each in a run directory of its own.

    Args:
        target: the machine.
        out: the folder of the runs; those that are there are continued.
        budget: seconds after which no further run is started; None for no limit.
        say: told what is going on.
    """

    def __init__(self, target: Target, out: Path, budget: float | None, say: Callable[[str], None]) -> None:
        self.target = target
        self.out = out
        self.say = say
        self.deadline = None if budget is None else time.monotonic() + budget
        self.runs: dict[Key, list[Path]] = {}
        self.trials: dict[Key, int] = {}
        self.keys: dict[Key, str] = {}  # of the tasks, as manifests have them
        self.errors: dict[Key, str] = {}

    def tune(self, operators: Iterable[Operator], threads: int, trials: int) -> None:
        """Tunes operators, those with the least work first; what goes wrong is kept as the operator's error.

        Raises:
            KeyboardInterrupt: a run was interrupted; it can be continued.
        """
        distinct = {made.label: made for made in operators}
        for made in sorted(distinct.values(), key=lambda one: one.operations):
            key = made.label, threads
            try:
                self._tune(made, threads, trials)
                self.errors.pop(key, None)
            except Exception as error:  # a failure is a row, never the end of the run
                if key not in self.runs:  # else a run with fewer trials serves
                    self.errors[key] = _said(error)
                self.say(f"{made.label} on {threads}: {_said(error)}")

    def _tune(self, made: Operator, threads: int, trials: int) -> None:
        task = Task(made, self.target, threads)
        # The key: a run of yesterday's rules is another run.
        path = self.out / f"{re.sub('[^a-z0-9]+', '-', made.label)}-t{threads}-{trials}-{task.key[:8]}"
        key = made.label, threads
        if not (path / "result.json").exists():
            if self.deadline is not None and time.monotonic() > self.deadline:
                raise HeronError("not tuned within the budget", "the same command again continues")
            outcome = tune(
                task, LocalDevice(task), TuneOptions(trials, _SEED), RunDirectory(path), resume=path.exists()
            )
            if outcome.interrupted:
                raise KeyboardInterrupt
            self.say(f"tuned {made.label} on {threads}, {trials} trials, {outcome.wall_seconds:.0f} s")
        load_run(path)
        self.runs.setdefault(key, []).append(path)
        self.keys[key] = task.key
        self.trials[key] = max(trials, self.trials.get(key, 0))


@dataclass
class Libraries:
    """The kernels of some runs: one library, or several where their packed layouts disagree or a kernel fails."""

    found: dict[Key, Exported] = field(default_factory=dict)
    errors: dict[Key, str] = field(default_factory=dict)

    def export(self, runs: dict[Key, list[Path]], out: Path) -> None:
        """Exports the best run of each task.

        Args:
            runs: run directories by task.
            out: a folder; each library gets one in it.
        """
        self._export(list(runs.items()), out, [])

    def _export(self, runs: Sequence[tuple[Key, list[Path]]], out: Path, made: list[Exported]) -> None:
        if not runs:
            return
        name = f"kernels{len(made) or ''}"
        try:
            manifest = export([path for _, paths in runs for path in paths], out / name, name)
        except Exception as error:  # as above
            if len(runs) == 1:
                self.errors[runs[0][0]] = _said(error)
                return
            half = len(runs) // 2
            self._export(runs[:half], out, made)
            self._export(runs[half:], out, made)
            return
        made.append(Exported(out / name, name, manifest))
        self.found |= dict.fromkeys((key for key, _ in runs), made[-1])


def _said(error: Exception) -> str:
    """An error in a line; of other packages' long messages the last one."""
    if isinstance(error, HeronError | InternalError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or ['no message'])[-1][:300]}"
