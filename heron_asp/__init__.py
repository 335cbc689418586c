"""heron_asp: fast, checked libraries for deep-learning accelerators.

See README.md; `heron-asp --help` lists the commands.

The same things are Python calls:

    from heron_asp import LocalDevice, RunDirectory, Task, TuneOptions, operator, resolve_target, tune

    task = Task(operator("gemm", {"m": 64, "n": 64, "k": 64}), resolve_target("zen4"))
    print(task.space.size, task.space.sample(5, numpy.random.default_rng(0)))
    outcome = tune(task, LocalDevice(task), TuneOptions(trials=64), RunDirectory(Path("runs/gemm64")))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heron_asp.host import resolve_target
    from heron_asp.measure.device import LocalDevice
    from heron_asp.operators import operator
    from heron_asp.space import Space
    from heron_asp.store import RunDirectory
    from heron_asp.task import Task
    from heron_asp.tuning import TuneOptions, tune

_HOME = {
    "LocalDevice": "heron_asp.measure.device",
    "RunDirectory": "heron_asp.store",
    "Space": "heron_asp.space",
    "Task": "heron_asp.task",
    "TuneOptions": "heron_asp.tuning",
    "operator": "heron_asp.operators",
    "resolve_target": "heron_asp.host",
    "tune": "heron_asp.tuning",
}

__all__ = ["LocalDevice", "RunDirectory", "Space", "Task", "TuneOptions", "operator", "resolve_target", "tune"]


def __getattr__(name: str) -> Any:
    """Imports a public name on first use: `import heron_asp` itself loads nothing."""
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'heron_asp' has no attribute '{name}'")
