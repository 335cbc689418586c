"""Planted faults: mistakes of an encoder, a simulator or a program are all seen by the recorded programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heron_asp.backends.vta import encode, functional, uops
from heron_asp.backends.vta.checker import check
from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.functional import simulate
from heron_asp.backends.vta.isa import Alu, AluOp, Compute, Gemm, Instruction, Load, Memory, Store, Transfer
from heron_asp.backends.vta.uops import Steps
from heron_asp.backends.vta.vectors import Recorded, compare_encodings, differences
from heron_asp.errors import HeronError
from tests.backends.vta.conftest import DATA

Fault = Callable[[Instruction], Instruction]


def fault(kind: type[Instruction], change: Callable[[Any], dict[str, Any]]) -> Fault:
    return lambda instruction: (
        replace(instruction, **change(instruction)) if isinstance(instruction, kind) else instruction
    )


def swapped(kind: type[Instruction], first: str, second: str) -> Fault:
    return fault(kind, lambda i: {first: getattr(i, second), second: getattr(i, first)})


FAULTS: dict[str, Fault] = {
    "hardware loops swapped": swapped(Compute, "iter_out", "iter_in"),
    "destination factors swapped": swapped(Compute, "dst_factor_out", "dst_factor_in"),
    "source factors swapped": swapped(Gemm, "src_factor_out", "src_factor_in"),
    "weight factors swapped": swapped(Gemm, "wgt_factor_out", "wgt_factor_in"),
    "last micro-op lost": fault(Compute, lambda i: {"uop_end": max(i.uop_bgn, i.uop_end - 1)}),
    "reset lost": fault(Gemm, lambda i: {"reset": 0}),
    "reset everywhere": fault(Gemm, lambda i: {"reset": 1}),
    "immediate without a sign": fault(Alu, lambda i: {"imm": i.imm & 0x7FFF}),
    "immediate's sign turned": fault(Alu, lambda i: {"imm": -i.imm}),
    "immediate not used": fault(Alu, lambda i: {"use_imm": 0}),
    "minimum for maximum": fault(
        Alu, lambda i: {"alu_opcode": {AluOp.MIN: AluOp.MAX, AluOp.MAX: AluOp.MIN}.get(i.alu_opcode, i.alu_opcode)}
    ),
    "rows and columns swapped": swapped(Transfer, "x_size", "y_size"),
    "stride taken as the row": fault(Transfer, lambda i: {"x_stride": i.x_size}),
    "paddings above and left swapped": swapped(Load, "y_pad_0", "x_pad_0"),
    "paddings begin and end swapped": swapped(Load, "x_pad_0", "x_pad_1"),
    "padding below lost": fault(Load, lambda i: {"y_pad_1": 0}),
    "scratchpad address off by one": fault(Store, lambda i: {"sram_base": i.sram_base + 1}),
    "DRAM address off by one": fault(Load, lambda i: {"dram_base": i.dram_base + 1}),
    "inputs for weights": fault(
        Load,
        lambda i: {"memory_type": {Memory.INP: Memory.WGT, Memory.WGT: Memory.INP}.get(i.memory_type, i.memory_type)},
    ),
}


def disagree(program: Recorded, instructions: list[Instruction]) -> bool:
    image = program.before.copy()
    try:
        counters = simulate(instructions, image, program.config)
    except HeronError:
        return True
    return bool(differences(program, image)) or counters.to_json() != program.counters


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_instructions(name: str, functional_programs: list[Recorded]) -> None:
    programs = functional_programs[::3]
    seen = [disagree(p, [FAULTS[name](i) for i in p.instructions]) for p in programs]
    assert any(seen)
    assert not any(disagree(p, p.instructions) for p in programs[:3])


_steps_of, _apply, _gemm = functional.steps_of, functional._apply, functional.Device._gemm


def _fields_swapped(uops: Any, config: Configuration) -> tuple[Any, Any, Any]:
    dst, src, wgt = encode.decode_uops(uops, config)
    return src, dst, wgt


def _without_factors(instruction: Compute, uops: Any, config: Configuration) -> Steps:
    zeros = dict.fromkeys(("dst_factor_out", "dst_factor_in", "src_factor_out", "src_factor_in"), 0)
    return _steps_of(replace(instruction, **zeros), uops, config)


def _not_transposed(device: functional.Device, gemm: Gemm, steps: Steps) -> None:
    weights = device.pads[Memory.WGT]
    device.pads[Memory.WGT] = weights.transpose(0, 2, 1)
    _gemm(device, gemm, steps)
    device.pads[Memory.WGT] = weights


def _rounding_shift(operation: AluOp, first: Any, second: Any) -> Any:
    if operation is not AluOp.SHR:
        return _apply(operation, first, second)
    return np.trunc(first / 2.0 ** np.asarray(second)).astype(np.int64)


@pytest.mark.parametrize(
    ("place", "name", "wrong"),
    [
        (uops, "decode_uops", _fields_swapped),
        (functional, "steps_of", _without_factors),
        (functional, "_apply", _rounding_shift),
        (functional.Device, "_gemm", _not_transposed),
        (functional.Device, "_distinct", lambda self, dst, used=None: True),
    ],
    ids=[
        "micro-op fields swapped",
        "factors ignored",
        "shift rounds to zero",
        "weights not transposed",
        "one sum an entry",
    ],
)
def test_wrong_semantics(
    place: object, name: str, wrong: object, functional_programs: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, wrong)
    assert any(disagree(program, program.instructions) for program in functional_programs)


@pytest.mark.parametrize("flag", ["pop_prev", "pop_next", "push_prev", "push_next"])
def test_dropped_tokens_are_refused(flag: str, functional_programs: list[Recorded]) -> None:
    """Each single token of a program: without it a stage waits for ever, a token stays behind, or stages race."""
    program = min((p for p in functional_programs if len(p.instructions) > 30), key=lambda p: len(p.instructions))
    tried = 0
    for number, instruction in enumerate(program.instructions):
        if getattr(instruction, flag):
            tried += 1
            changed = [*program.instructions]
            changed[number] = replace(instruction, **{flag: 0})
            assert check(changed, program.config, program.before), number
    assert tried


@pytest.mark.parametrize("order", [("iter_in", "iter_out"), ("dst_factor_in", "dst_factor_out"), ("x_size", "y_size")])
def test_wrong_words(order: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fields of equal width in each other's place."""
    original = encode._place

    def misplaced(fields: Any) -> tuple[encode.Slot, ...]:
        names = [name for name, _ in fields]
        widths = dict(fields)
        if set(order) <= set(names):
            first, second = (names.index(name) for name in order)
            names[first], names[second] = names[second], names[first]
        return original((name, widths[name]) for name in names)

    monkeypatch.setattr(encode, "_place", misplaced)
    encode.layout.cache_clear()
    try:
        count, wrong = compare_encodings(DATA / "encodings.json.gz")
    finally:
        encode.layout.cache_clear()
    assert count == 148
    assert len(wrong) > 10
