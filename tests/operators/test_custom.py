"""Operators of the user's own: from files, from PrimFuncs, and what is said where they are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heron_asp import LocalDevice, Task
from heron_asp.errors import HeronError
from heron_asp.measure.result import Limits, Status
from heron_asp.operators import from_prim_func, operator
from heron_asp.target import Target

EXAMPLES = Path(__file__).parents[2] / "examples"
SCORES = f"{EXAMPLES / 'attention_scores.py'}:scores"
POINTWISE = f"{EXAMPLES / 'pointwise_permuted.py'}:pointwise"
SMALL = {"batch": 2, "rows": 5, "columns": 19, "heads": 3, "depth": 6}


@pytest.mark.parametrize(("source", "shape"), [(SCORES, SMALL), (POINTWISE, {})])
def test_examples_are_tensorized_and_right(runnable: Target, source: str, shape: dict[str, int]) -> None:
    task = Task(operator(source, shape), runnable)
    assert all(sketch.tensorized for sketch in task.sketches)
    device = LocalDevice(task, Limits(repeats=1, repeat_ms=1))
    for candidate in task.space.sample(2, np.random.default_rng(0)):
        found = device.measure(candidate)
        assert (found.status, found.error) == (Status.CORRECT, "")


def test_a_function_without_a_reference_is_its_own() -> None:
    from tvm import te

    a, b = te.placeholder((4, 6), "uint8", name="a"), te.placeholder((5, 6), "int8", name="b")
    k = te.reduce_axis((0, 6), name="k")
    total = te.compute(
        (4, 5), lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k), name="total"
    )
    c = te.compute((4, 5), lambda i, j: te.max(total[i, j], 0), name="c")
    kind = from_prim_func("rectified", te.create_prim_func([a, b, c]), constant={"b"})
    assert kind.dtype == "u8s8s32"
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (4, 6)).astype("float64"), rng.integers(-128, 128, (5, 6)).astype("float64")
    assert (kind.reference({}, [x, y], "") == np.maximum(x @ y.T, 0)).all()
    with pytest.raises(HeronError, match="has no argument 'bias'"):
        from_prim_func("rectified", te.create_prim_func([a, b, c]), constant={"bias"})
    with pytest.raises(HeronError, match="lower-case C identifier"):
        from_prim_func("Rectified", kind.function)
    with pytest.raises(HeronError, match="neither an OperatorKind nor a PrimFunc"):
        from_prim_func("rectified", 3)


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("x = 1", "y", "defines no 'y'"),
        ("x = 1", "x", "a int is neither an OperatorKind nor a PrimFunc"),
        ("1 / 0", "x", "fails: ZeroDivisionError"),
    ],
)
def test_a_file_without_an_operator_says_so(tmp_path: Path, text: str, name: str, said: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(HeronError, match=said):
        operator(f"{file}:{name}", {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeronError, match="there is no file"):
        operator(f"{tmp_path / 'none.py'}:x", {})


def test_a_changed_file_is_another_task(tmp_path: Path, zen4: Target) -> None:
    file = tmp_path / "mine.py"
    text = (EXAMPLES / "pointwise_permuted.py").read_text()
    keys = set()
    for variant in (text, text.replace("np.maximum", "1 * np.maximum")):
        file.write_text(variant)
        keys.add(Task(operator(f"{file}:pointwise", {}), zen4).key)
    assert len(keys) == 2
