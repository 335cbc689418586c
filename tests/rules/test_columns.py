"""Which axes have columns that may be zero padding."""

from __future__ import annotations

import pytest

from tests.rules.conftest import DOT, of

FILES = (
    "core/s1_tensorize",
    "core/s1_roles",
    "core/s1_padding",
    "core/s2_multi_level_spm",
    "dlboost/schedule",
    "dlboost/columns",
)
CONV = """
block(y).  axis(y, ow, spatial, 7).  axis(y, co, spatial, 32).  axis(y, kw_ci, reduce, 24).
operand(y, 0, x).  operand(y, 1, w).  result(y, y).  tensor(x, u8).  tensor(w, s8).  tensor(y, s32).
access(y, x, 0, ow, 8).  access(y, x, 0, kw_ci, 1).  access(y, w, 0, kw_ci, 1).  access(y, w, 1, co, 1).
access(y, y, 0, ow, 1).  access(y, y, 1, co, 1).
pitch(x, 0, 1).  pitch(w, 0, 32).  pitch(w, 1, 1).  pitch(y, 0, 32).  pitch(y, 1, 1).  constant(w).  pays(columns, 7).
bordered(y, x, 0, 8).
"""


def test_columns_are_apart_in_a_sketch_of_their_own(answers) -> None:
    (found,) = (one for one in answers(CONV + DOT, *FILES) if "variant(y,columns)" in one)
    assert "variant(y,sliced)" not in found
    assert of(found, "candidate") >= {"candidate(tile(y,kw_ci,column),3)"}
    assert {atom for atom in of(found, "tile") if "ow" in atom} == {"tile(y,ow,register)"}
    assert "step((96,(ow,x,0)),skip_zeros(loop(y,ow,register),x,0))" in found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bordered(y, x, 0, 8).", ""),  # no padding
        ("bordered(y, x, 0, 8).", "bordered(y, x, 0, 6)."),  # an instruction would read two columns
        ("bordered(y, x, 0, 8).", "bordered(y, x, 0, 24)."),  # a single column
        ("spatial, 7)", "spatial, 8)"),  # a wide result
        ("reduce, 24)", "reduce, 64)"),  # a wide window
        ("reduce, 24)", "reduce, 20)"),  # the last column is a part of one
    ],
)
def test_without_columns_there_is_no_such_sketch(answers, old: str, new: str) -> None:
    assert old in CONV
    assert not any("variant(y,columns)" in one for one in answers(CONV.replace(old, new) + DOT, *FILES))


def test_a_longer_step_of_the_window_is_a_column(answers) -> None:
    apart = CONV.replace(
        "access(y, x, 0, ow, 8).  access(y, x, 0, kw_ci, 1).", "access(y, x, 0, ow, 1).  access(y, x, 0, kw, 2)."
    )
    apart = apart.replace("axis(y, kw_ci, reduce, 24).", "axis(y, kw, reduce, 3).  axis(y, ci, reduce, 8).")
    apart = apart.replace(
        "access(y, w, 0, kw_ci, 1).", "access(y, x, 1, ci, 1).  access(y, w, 2, kw, 1).  access(y, w, 0, ci, 1)."
    )
    apart = apart.replace("pitch(x, 0, 1).", "pitch(x, 0, 8).  pitch(x, 1, 1).").replace("0, 8).\n", "0, 1).\n")
    (found,) = (one for one in answers(apart + DOT, *FILES) if "variant(y,columns)" in one)
    assert "candidate(tile(y,kw,column),3)" in found
    assert {"tile(y,kw,unroll)", "tile(y,ci,column)"}.isdisjoint(found)
    assert "tile(y,ci,unroll)" in found
