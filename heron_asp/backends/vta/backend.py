"""The backend of VTA: candidates become instructions and micro-ops, checked, simulated and counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heron_asp.backends import LOCAL, View, require_local
from heron_asp.backends.vta.machine import numbers_of

if TYPE_CHECKING:
    from heron_asp.backends.vta.library import Manifest
    from heron_asp.backends.vta.measure import VtaDevice
    from heron_asp.measure.result import Limits
    from heron_asp.space import Candidate
    from heron_asp.target import Target
    from heron_asp.task import Task


class Vta:
    """See `heron_asp.backends.Backend`."""

    verifies = LOCAL

    def check(self, target: Target) -> None:
        """The numbers make a configuration of VTA."""
        numbers_of(target)

    def here(self, target: Target) -> tuple[bool, str]:
        """Any machine can simulate."""
        numbers = numbers_of(target)
        return True, f"runs here; intrinsics {numbers.intrinsic}; measures {numbers.measures}"

    def clock(self, target: Target) -> float:
        """Of the device."""
        return numbers_of(target).hertz

    def bound(self, task: Task) -> float | None:
        """One micro-op a cycle, and every operand over the bus once."""
        from heron_asp.backends.vta.lowering import problem_of

        numbers = numbers_of(task.target)
        intrinsic = task.target.intrinsics[numbers.intrinsic]
        problems = [
            problem_of(task.block, sketch, intrinsic, numbers.config) for sketch in task.sketches if sketch.tensorized
        ]
        return min((problem.least_cycles / numbers.hertz for problem in problems), default=None)

    def require_device(self, said: str) -> None:
        """There is one only."""
        require_local(said)

    def device(self, task: Task, limits: Limits, said: str = LOCAL) -> VtaDevice:
        """The simulators, in this process: nothing that the checker lets through waits for ever."""
        require_local(said)
        from heron_asp.backends.vta.measure import VtaDevice

        return VtaDevice(task, limits)

    def show(self, task: Task, candidate: Candidate, view: View) -> str:
        """The loop nest, or the instructions."""
        from heron_asp.backends.vta.listing import code, nest

        return code(task, candidate) if view is View.CODE else nest(task, candidate)

    def export(self, runs: Sequence[Path], out: Path, name: str, prefix: str) -> Manifest:
        """C source: instructions, micro-ops, and what brings tensors into VTA's layout."""
        from heron_asp.backends.vta.library import export

        return export(runs, out, name, prefix)


BACKEND = Vta()
