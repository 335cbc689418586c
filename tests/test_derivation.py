"""Sketches: one for each sound choice, told apart by their names."""

from __future__ import annotations

from heron_asp.target import Target
from tests.conftest import make_task


def test_sketches_have_names_of_their_own(zen4: Target) -> None:
    plain = make_task(zen4, m=8, n=20, k=9)
    assert [sketch.name for sketch in plain.sketches] == ["vpdpbusd", "vpdpbusd sliced"]
    window = make_task(zen4, "conv2d", n=3, h=2, w=4, ci=12, co=3, kh=2, kw=1)  # a column of taps, or channels
    assert [sketch.name for sketch in window.sketches] == [
        "vpdpbusd r=ci", "vpdpbusd r=kh", "vpdpbusd sliced r=ci", "vpdpbusd sliced r=kh",
    ]  # fmt: skip
