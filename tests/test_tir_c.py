"""TIR expressions as C: compiled, they have the values that numpy finds."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heron_asp.analysis import analyse
from heron_asp.errors import InternalError
from heron_asp.operators import operator
from heron_asp.tir import evaluated
from heron_asp.tir_c import WORDS, bare, expression, flat, helpers

COMPILER = shutil.which("cc") or shutil.which("gcc")

EXPRESSIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "quotient": lambda t, i, j: t.floordiv(i, 3) + t.floordiv(i - 7, j * 2 + 1),
    "remainder": lambda t, i, j: t.floormod(i, 3) * 10 + t.floormod(i - 7, j * 2 + 1),
    "extremes": lambda t, i, j: t.min(i, j * 3) - t.max(i, t.const(-4, "int32")),
    "choice": lambda t, i, j: t.if_then_else(t.all(i > -3, t.any(i < 5, j.equal(2))), i * j, -1),
    "negation": lambda t, i, j: t.if_then_else(t.Not(i >= j), i, j),
    "narrow": lambda t, i, j: ((i * 40).astype("int8") + (j * 50).astype("int8")).astype("int32"),
    "shift": lambda t, i, j: (i * 100 >> 3) + (j << 2),
}


@pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc)")
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_values_are_those_of_numpy(name: str, tmp_path: Path) -> None:
    from tvm import tirx

    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    value = EXPRESSIONS[name](tirx, i, j)
    text = bare(expression(value, {i: "i", j: "j"}, lambda *_: ""))
    function = f"int32_t value(int32_t i, int32_t j)\n{{\n    return {text};\n}}\n"
    source, binary = tmp_path / "value.c", tmp_path / "value.so"
    source.write_text("\n".join(["#include <stdint.h>", *helpers([text]), function]))
    assert COMPILER
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
    subprocess.run([COMPILER, *flags, str(source), "-o", str(binary)], check=True)
    compiled = ctypes.CDLL(str(binary)).value
    first, second = np.arange(-12, 13)[:, None], np.arange(1, 5)[None, :]
    expected = np.broadcast_to(evaluated(value, {i: first, j: second}, {}), (25, 4))
    assert [[compiled(int(a), int(b)) for b in second[0]] for a in first[:, 0]] == expected.tolist()


def test_loads_are_written_by_the_caller() -> None:
    shape = {"n": 1, "h": 4, "w": 5, "ci": 3, "co": 2, "kh": 3, "kw": 1, "padding_h": 1}
    stage = analyse(operator("conv2d", shape), windows=False).operands[0].stage
    assert stage is not None
    variables = {one: f"i{at}" for at, one in enumerate(stage.variables)}
    text = expression(stage.value, variables, lambda name, at: f"{name}[{flat(at, (1, 4, 5, 3))}]")
    assert bare(text) == "((1 <= i0) && (i0 < 5)) ? x[((i0 - 1) * 5 + i1) * 3 + i2] : 0"


def test_what_c_cannot_say_is_refused() -> None:
    from tvm import tirx

    i = tirx.Var("i", "int32")
    with pytest.raises(InternalError, match="Select is no operation that is known here"):
        expression(tirx.Select(i < 3, i, 0), {i: "i"}, lambda *_: "")
    with pytest.raises(InternalError, match="float32 is no type that is known here"):
        expression(i.astype("float32"), {i: "i"}, lambda *_: "")


def test_places_are_counted_row_by_row() -> None:
    assert flat(["i", "j", "k"], (2, 3, 4)) == "(i * 3 + j) * 4 + k"
    assert flat(["0", "j", "0"], (2, 3, 4)) == "j * 4"
    assert flat(["0", "0"], (2, 3)) == "0"
    assert flat([], ()) == "0"


def test_brackets_around_everything_are_left_out() -> None:
    assert [bare(text) for text in ("(a + b)", "(a) + (b)", "a", "((a))")] == ["a + b", "(a) + (b)", "a", "(a)"]


def test_only_what_is_called_is_defined() -> None:
    assert helpers(["a + b", "my_least_int32(a, b)"]) == []
    assert len(helpers(["least_int32(a, quotient_int64(b, c))"] * 2)) == 2
    assert "quotient_int64" in WORDS
