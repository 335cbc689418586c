"""Sketches: one for each sound choice, told apart by their names."""

from __future__ import annotations

from heron_asp.explain import untensorized
from heron_asp.operators import operator
from heron_asp.resources import targets_folder
from heron_asp.target import Target, load_target
from heron_asp.task import Task
from tests.conftest import make_task


def test_sketches_have_names_of_their_own(zen4: Target) -> None:
    plain = make_task(zen4, m=8, n=20, k=9)
    assert [sketch.name for sketch in plain.sketches] == ["vpdpbusd", "vpdpbusd sliced"]
    window = make_task(zen4, "conv2d", n=3, h=2, w=4, ci=12, co=3, kh=2, kw=1)  # a column of taps, or channels
    assert [sketch.name for sketch in window.sketches] == [
        "vpdpbusd r=ci", "vpdpbusd r=kh", "vpdpbusd sliced r=ci", "vpdpbusd sliced r=kh",
    ]  # fmt: skip


def test_an_operand_with_windows_is_not_packed(zen4: Target) -> None:
    """Crossed, x would be packed for the lanes: then taps, of which windows share some, are not summed at once."""
    shape = {"n": 3, "h": 1, "w": 2, "ci": 32, "co": 33, "kh": 1, "kw": 2, "stride": 3, "padding": 3}
    made = operator("conv2d", shape, "bf16bf16f32", "channels-first")
    names = [sketch.name for sketch in Task(made, zen4).sketches]
    assert {name for name in names if "r=kw" in name} == {"vdpbf16ps r=kw", "vdpbf16ps sliced r=kw"}
    assert "vdpbf16ps crossed" in names


def test_why_windows_are_refused_is_said(zen4: Target) -> None:
    depthwise = make_task(zen4, "depthwise_conv2d", n=1, h=5, w=5, c=4, kh=3, kw=3)
    reasons, remedies = untensorized(depthwise)
    assert "vpdpbusd: no axis of the operator can play its role r (kh slides a window over x; kw slides" in reasons[1]
    assert remedies == []  # other types would not help
    plain = make_task(zen4, dtype="f32f32f32", m=4, n=4, k=4)
    assert untensorized(plain)[1] == ["the instructions of the target take bf16bf16f32, u8s8s32"]


def test_what_would_help_is_of_the_family_and_has_what_is_lacking() -> None:
    t4 = load_target(targets_folder() / "t4.toml")
    reasons, remedies = untensorized(make_task(t4, dtype="bf16bf16f32", m=16, n=16, k=16))
    assert reasons[0] == "wmma_16x16x16_bf16_f32: the target lacks bf16"
    assert remedies == ["a target that has it, for example -t a100"]
    cascadelake = load_target(targets_folder() / "cascadelake.toml")
    _, remedies = untensorized(make_task(cascadelake, dtype="bf16bf16f32", m=16, n=16, k=16))
    assert remedies == ["a target that has it, for example -t sapphirerapids"] or remedies[0].endswith("-t zen4")
    reasons, remedies = untensorized(make_task(t4, dtype="f32f32f32", m=16, n=16, k=16))
    assert remedies == ["the instructions of the target take f16f16f16, f16f16f32, s8s8s32"]
    assert not [one for one in reasons if one.endswith(")")]  # no term without words
