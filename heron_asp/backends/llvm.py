"""TVM for a CPU: programs are schedules of TVM, compiled by LLVM and timed on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heron_asp.backends import LOCAL, View, require_local
from heron_asp.errors import HeronError

if TYPE_CHECKING:
    from heron_asp.library.manifest import Manifest
    from heron_asp.measure.device import LocalDevice
    from heron_asp.measure.result import Limits
    from heron_asp.space import Candidate
    from heron_asp.target import Target
    from heron_asp.task import Task


_MEANT = {
    "compiler": "what TVM compiles for, by LLVM's name of it: [compiler] mcpu = ...",
    "llvm_cpus": "LLVM's names of the CPUs that the numbers fit, as in targets/zen4.toml",
    "memories": "caches, innermost first: name and capacity in bytes",
}


class Llvm:
    """See `heron_asp.backends.Backend`."""

    verifies = LOCAL

    def check(self, target: Target) -> None:
        """The machine says what to compile for, and every instruction how it is called."""
        needed = (("compiler", target.machine.compiler), ("llvm_cpus", target.machine.llvm_cpus))
        for key, value in (*needed, ("memories", target.machine.memories)):
            if not value:
                raise HeronError(f"{target.path}: key '{key}' is missing", _MEANT[key])
        for intrinsic in target.intrinsics.values():
            if intrinsic.call is None:
                raise HeronError(
                    f"{target.path}: intrinsic '{intrinsic.name}': key 'call' is missing",
                    "an LLVM intrinsic by its name, or LLVM IR",
                )

    def here(self, target: Target) -> tuple[bool, str]:
        """A CPU needs the instructions."""
        from heron_asp.host import missing_flags

        missing = missing_flags(target)
        if missing:
            looks = "check, explain, audit and sample work, tune needs such a machine"
            return False, f"this CPU lacks {', '.join(missing)}: {looks}"
        usable = [one.name for one in target.intrinsics.values() if set(one.requires) <= set(target.machine.cpu_flags)]
        return True, f"runs here; intrinsics {', '.join(usable)}; measures time on this machine"

    def clock(self, target: Target) -> None:
        """Time is measured."""
        del target

    def bound(self, task: Task) -> None:
        """Not known: the peak is measured instead."""
        del task

    def require_device(self, said: str) -> None:
        """There is one only."""
        require_local(said)

    def device(self, task: Task, limits: Limits, said: str = LOCAL) -> LocalDevice:
        """This machine, if it has the instructions."""
        require_local(said)
        from heron_asp.host import require_host
        from heron_asp.measure.device import LocalDevice

        require_host(task.target)
        return LocalDevice(task, limits)

    def show(self, task: Task, candidate: Candidate, view: View) -> str:
        """The schedule as Python that runs, or the scheduled TIR."""
        from heron_asp.schedule.script import script_of

        if view is View.CODE:
            return str(task.program(candidate).module.script())
        return script_of(task, candidate)

    def export(self, runs: Sequence[Path], out: Path, name: str, prefix: str) -> Manifest:
        """A C library."""
        from heron_asp.library import export

        return export(runs, out, name, prefix)


BACKEND = Llvm()
