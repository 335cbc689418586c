"""A search space as data: how many programs, what a knob may be, what pins leave, and one program's code.

python examples/inspect_a_space.py
"""

from __future__ import annotations

import numpy as np

from heron_asp import Task, operator, resolve_target
from heron_asp.schedule.script import script
from heron_asp.terms import parse

task = Task(operator("gemm", {"m": 1000, "n": 1000, "k": 1000}), resolve_target("zen4"))
print(f"{task.operator.label} on {task.target.name}: {task.space.size} programs")
for sketch in task.space:
    print(f"  {sketch.name}: {sketch.size} programs, {len(sketch.variables)} variables")

register = parse("tile(c, m, register)")
for value, share in task.space["vpdpbusd"].marginals()[register].items():
    print(f"  {100 * share:5.1f} % of them have {value} rows in registers")

pins = {register: frozenset({8}), parse("position(drain(c))"): frozenset({"root"})}
print(f"with 8 rows in registers and no buffer for the result: {task.space.count(pins)} programs, for example")
(candidate,) = task.space.sample(1, np.random.default_rng(0), pins)
print(script(task.calls(candidate), "zen4", "'gemm', {'m': 1000, 'n': 1000, 'k': 1000}, 'u8s8s32'", candidate.key))
