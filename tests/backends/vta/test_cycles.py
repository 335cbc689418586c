"""Cycles against those of the RTL."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from heron_asp.backends.vta import channel, cycles
from heron_asp.backends.vta.checker import check
from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.cycles import count_cycles
from heron_asp.backends.vta.encode import decode_program
from heron_asp.backends.vta.isa import Finish, Load, Memory
from heron_asp.backends.vta.vectors import Recorded
from heron_asp.backends.vta.violation import Rule
from heron_asp.errors import HeronError
from tests.backends.vta import pieces
from tests.backends.vta.conftest import DATA


def test_recorded_programs(timed_programs: list[Recorded]) -> None:
    """The promise is 0.5 % on average and 2.5 % at most; what is recorded here is met exactly."""
    errors = [
        abs(count_cycles(program.instructions, program.config) / program.cycles - 1)
        for program in timed_programs
        if program.cycles
    ]
    assert len(errors) == 40
    assert max(errors) <= 0.025
    assert float(np.mean(errors)) <= 0.005
    assert errors == [0.0] * 40


def test_single_instructions_and_sequences() -> None:
    content = json.loads(gzip.decompress((DATA / "single_instruction.json.gz").read_bytes()))
    config = Configuration.from_numbers(content["config"] | {"bus_bits": content["memory_bus_bits"]})
    wrong, count = [], 0
    for entry in content["instructions"] + content["sequences"]:
        for key in ("", "reference_"):
            if f"{key}program" in entry:
                program = decode_program((int(word, 16) for word in entry[f"{key}program"]), config)
                count += 1
                if (found := count_cycles(program, config)) != entry[f"{key}rtl_cycles"]:
                    wrong.append((entry["id"], found, entry[f"{key}rtl_cycles"]))
    assert count == 371
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (channel, "_LATENCY", 16),
        (channel, "_OUTSTANDING", 4),
        (cycles, "_PIPELINE", 5),
        (cycles, "MOST_WAITING", 8),
    ],
)
def test_every_constant_matters(
    module: object, name: str, value: int, timed_programs: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, value)
    assert any(count_cycles(program.instructions, program.config) != program.cycles for program in timed_programs)


def test_bursts_matter(timed_programs: list[Recorded]) -> None:
    assert any(
        count_cycles(program.instructions, program.config.model_copy(update={"burst_beats": 128})) != program.cycles
        for program in timed_programs
    )


def test_the_order_of_clients_matters(timed_programs: list[Recorded], monkeypatch: pytest.MonkeyPatch) -> None:
    original = channel.ReadChannel.request
    monkeypatch.setattr(
        channel.ReadChannel,
        "request",
        lambda self, cycle, client, beats, issued: original(self, cycle, 4 - client, beats, issued),
    )
    assert any(count_cycles(program.instructions, program.config) != program.cycles for program in timed_programs)


def test_a_wider_bus_is_faster(timed_programs: list[Recorded]) -> None:
    program = timed_programs[4]
    found = [
        count_cycles(program.instructions, program.config.model_copy(update={"bus_bits": bits}))
        for bits in (64, 128, 256, 512)
    ]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0]


def test_more_instructions_than_a_queue_holds(config: Configuration, image: np.ndarray) -> None:
    """Loads wait for a token that stands behind them; when too many do, it never comes."""
    waiting = [Load(memory_type=Memory.INP, pop_next=1)] + [Load(memory_type=Memory.INP)] * 500
    giving = [Load(memory_type=Memory.UOP, push_prev=1)]
    last = [Load(memory_type=Memory.INP, push_next=1), Load(memory_type=Memory.UOP, pop_prev=1), Finish()]
    early = count_cycles(giving + waiting + last, config)
    late = count_cycles(waiting + giving + last, config)
    assert early < late < early + 1100
    assert check(waiting + giving + last, config, image) == []
    much = waiting + [Load(memory_type=Memory.INP)] * 100 + giving + last
    found = check(much, config, image)
    assert [(v.rule, v.number, v.field) for v in found] == [(Rule.DEADLOCK, 512, "opcode")]
    with pytest.raises(HeronError, match="instruction 512: 512 instructions wait"):
        count_cycles(much, config)
    assert count_cycles(giving + much[:-4] + last, config) > early


def test_a_program_that_never_ends_has_no_cycles(config: Configuration) -> None:
    with pytest.raises(HeronError, match="waits for ever"):
        count_cycles(pieces.program()[pieces.GEMM :], config)
