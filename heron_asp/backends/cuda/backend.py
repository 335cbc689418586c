"""The backend for NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heron_asp.backends import View
from heron_asp.errors import HeronError

if TYPE_CHECKING:
    from heron_asp.space import Candidate
    from heron_asp.target import Target
    from heron_asp.task import Task


class Cuda:
    """See `heron_asp.backends.Backend`."""

    def check(self, target: Target) -> None:
        """The GPU says what to compile for, and how much shared memory a block can have."""
        compiler = target.machine.compiler
        if compiler is None or compiler.kind != "cuda" or not compiler.mcpu.startswith("sm_"):
            raise HeronError(f"{target.path}: [compiler]: kind = \"cuda\" and mcpu = \"sm_..\" are needed")
        if "shared" not in {memory.name for memory in target.machine.memories}:
            raise HeronError(f"{target.path}: there is no memory 'shared'", "bytes that a block can have of it")

    def measures(self, target: Target) -> str:
        """Modelled."""
        del target
        return "time of a model, not measured"

    def clock(self, target: Target) -> None:
        """Time is measured, or modelled."""
        del target

    def bound(self, task: Task) -> None:
        """Not known."""
        del task

    def device(self, task: Task, limits: Any) -> Any:
        """Not yet."""
        raise HeronError("not yet")

    def show(self, task: Task, candidate: Candidate, view: View) -> str:
        """The schedule as Python that runs, or CUDA C++."""
        from heron_asp.backends.cuda.build import build
        from heron_asp.schedule.script import script

        if view is View.CODE:
            return build(task, candidate).source
        made = task.operator
        arguments = f"{made.name!r}, {dict(made.said)!r}, {made.dtype!r}, {made.layout!r}"
        arguments += f", {made.epilogue_text!r}" if made.epilogue else ""
        return script(task.calls(candidate), str(task.target.path), arguments, f"{made.label}: {candidate.sketch}.")

    def export(self, runs: Sequence[Path], out: Path, name: str, prefix: str) -> Any:
        """Not yet."""
        raise HeronError("not yet")


BACKEND = Cuda()
