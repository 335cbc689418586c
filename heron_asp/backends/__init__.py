"""Backends: what makes programs out of candidates, checks and measures them, and exports the best.

A family names its backend in its file; without a name it is `llvm`, TVM for a CPU. A backend is a module of this
package with a `BACKEND` of the protocol below; it knows a kind of device, rules and targets know the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Protocol

from heron_asp.errors import HeronError
from heron_asp.resources import suggestion

if TYPE_CHECKING:
    from heron_asp.measure.device import Device
    from heron_asp.measure.result import Limits
    from heron_asp.space import Candidate
    from heron_asp.target import Target
    from heron_asp.task import Task


LOCAL = "local"


class View(StrEnum):
    """How a program may be shown."""

    SCHEDULE = "schedule"  # what is chosen, in the order in which it is done
    CODE = "tir"  # what comes out of it: TIR, or a device's own instructions


class Exported(Protocol):
    """What was exported."""

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `export`."""

    def summary(self) -> Sequence[str]:
        """The same in lines to read."""


class Backend(Protocol):
    """Makes, measures and exports programs for the targets of a kind.

    Attributes:
        verifies: the device that says whether programs are right, be there one that times them or not.
    """

    verifies: str

    def check(self, target: Target) -> None:
        """Makes sure that programs can be made for a target.

        Raises:
            HeronError: a number is missing, or contradicts others; with the file and the key.
        """

    def here(self, target: Target) -> tuple[bool, str]:
        """Whether this machine can tune for a target, and what it does then, or what it lacks."""

    def clock(self, target: Target) -> float | None:
        """Cycles a second, where cycles are counted and times are made of them; None where time is measured."""

    def bound(self, task: Task) -> float | None:
        """Seconds that no program of a task can beat; None where that is not known."""

    def require_device(self, said: str) -> None:
        """Makes sure that there may be such a device.

        Raises:
            HeronError: the backend has none of that name.
        """

    def device(self, task: Task, limits: Limits, said: str = LOCAL) -> Device:
        """What measures the candidates of a task.

        Args:
            task: what to measure.
            limits: of building and running.
            said: which of the backend's devices; every backend has a `local` one.

        Raises:
            MissingError: this machine cannot.
            HeronError: there is no such device, or the task is too large to be checked.
        """

    def show(self, task: Task, candidate: Candidate, view: View) -> str:
        """A program as text."""

    def export(self, runs: Sequence[Path], out: Path, name: str, prefix: str) -> Exported:
        """Writes a library of the best programs of some runs."""


def require_local(said: str) -> None:
    """For backends that have no other device.

    Raises:
        HeronError: another is asked for.
    """
    if said != LOCAL:
        raise HeronError(f"--device {said}: no such device", "local, or replay:RUN with a run directory")


def backend_of(target: Target) -> Backend:
    """The backend of a target's family.

    Raises:
        HeronError: there is no such backend.
    """
    return backend_named(target.shared.backend, f"family '{target.family}': ")


def backend_named(name: str, where: str = "") -> Backend:
    """The backend of a name; `where` begins the error if there is none."""
    known = [module.name for module in iter_modules(__path__)]
    if name not in known:
        raise HeronError(f"{where}there is no backend '{name}'", suggestion(name, known))
    backend: Backend = import_module(f"{__name__}.{name}").BACKEND
    return backend
