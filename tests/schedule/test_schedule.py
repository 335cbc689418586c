"""Plans, their text, and their replay."""

from __future__ import annotations

import numpy as np
import pytest

from heron_asp.schedule.calls import IndexMap
from heron_asp.schedule.plan import plan
from heron_asp.schedule.replay import split_prepared
from heron_asp.schedule.script import script
from heron_asp.target import Target
from tests.conftest import make_task

CASES = [
    ("gemm", "u8s8s32", 1, {"m": 17, "n": 33, "k": 9}),
    ("gemm", "bf16bf16f32", 2, {"m": 16, "n": 32, "k": 8}),
    ("gemv", "u8s8s32", 1, {"m": 33, "k": 8}),
    ("batch_matmul", "u8s8s32", 2, {"batch": 2, "m": 5, "n": 20, "k": 8}),
    ("gemm", "f32f32f32", 1, {"m": 4, "n": 20, "k": 6}),
    ("gemm", "s8s8s32", 1, {"m": 17, "n": 33, "k": 9}),
]


@pytest.mark.parametrize(("name", "dtype", "threads", "shape"), CASES)
def test_the_text_schedules_what_replay_schedules(zen4: Target, name, dtype, threads, shape) -> None:
    import tvm_ffi

    task = make_task(zen4, name, dtype, threads, **shape)
    for candidate in task.space.sample(6, np.random.default_rng(0)):
        calls = task.calls(candidate)
        arguments = f"{name!r}, {shape!r}, {dtype!r}"
        made: dict = {"__name__": "pasted"}
        exec(script(calls, str(zen4.path), arguments), made)
        scheduled = split_prepared(made["schedule"](task.block).mod)
        replayed = task.program(candidate)
        assert scheduled.packings == replayed.packings
        assert tvm_ffi.structural_equal(scheduled.module, replayed.module)


def test_what_is_known_ahead_leaves_the_kernel(zen4: Target) -> None:
    task = make_task(zen4, m=17, n=33, k=9)
    candidate = task.space.sample(1, np.random.default_rng(0))[0]
    program = task.program(candidate)
    (packing,) = program.packings
    assert (packing.tensor, packing.function, packing.shape) == ("b", "pack_b", (3, 3, 16, 4))
    assert {name.name_hint for name in program.module.get_global_vars()} == {"main", "pack_b"}
    assert program.module["main"].params[0].name == "a"


def test_the_layout_depends_on_n_and_k_only(zen4: Target) -> None:
    shapes = set()
    for m in (1, 3, 64, 127):
        task = make_task(zen4, m=m, n=40, k=30)
        for candidate in task.space.sample(10, np.random.default_rng(0)):
            shapes.add(task.program(candidate).packings[0].shape)
    assert shapes == {(3, 8, 16, 4)}


def test_steps_that_are_not_taken_make_no_call(zen4: Target) -> None:
    task = make_task(zen4, m=64, n=64, k=64)
    for candidate in task.space.sample(40, np.random.default_rng(1)):
        position = next(v for k, v in candidate.values.items() if str(k) == "position(drain(c))")
        sketch = task.space[candidate.sketch].sketch
        primitives = [call.primitive for call in plan(task.block, sketch, candidate.values)]
        assert ("cache_write" in primitives) == (position != "root")
        assert ("reverse_compute_at" in primitives) == (position != "root")


def test_index_map() -> None:
    index_map = IndexMap(2, ((1, "//", 16), (0, "//", 4), (1, "%", 16), (0, "%", 4)))
    assert index_map.apply([9, 35]) == [2, 2, 3, 1]
