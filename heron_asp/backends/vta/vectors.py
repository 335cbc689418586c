"""Recorded programs and encodings, and whether this backend agrees with them.

A line of a program file is a JSON object: `config` (numbers of the device), `memory_size`, `memory` and `output` (byte
ranges, Base64), `instructions` (128-bit words, 32 hex digits), `counters`, and where hardware was timed `rtl_cycles`.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from heron_asp.backends.vta.checker import check
from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.cycles import count_cycles
from heron_asp.backends.vta.encode import (
    decode_instruction,
    decode_program,
    decode_uop,
    encode_instruction,
    encode_uop,
)
from heron_asp.backends.vta.functional import Bytes, simulate
from heron_asp.backends.vta.isa import Instruction, opcode_of
from heron_asp.errors import HeronError


@dataclass(frozen=True)
class Recorded:
    """A recorded program.

    Attributes:
        name: its `id`.
        config: the device.
        instructions: the program.
        address: where the stream lay in DRAM, in bytes; matters only to its fetching.
        before: the DRAM image, bytes.
        output: the byte ranges that the program may change, with their contents afterwards.
        counters: what VTA's simulator counted.
        cycles: cycles of the hardware, None if not measured.
    """

    name: str
    config: Configuration
    instructions: list[Instruction]
    address: int
    before: Bytes
    output: list[tuple[int, bytes]]
    counters: Mapping[str, int]
    cycles: int | None = None


@dataclass
class Comparison:
    """What became of one recorded program.

    Attributes:
        name: its `id`.
        outputs: whether all memory is as recorded; None if it did not run.
        counters: whether all counters are as recorded; None if it did not run.
        library: whether all memory is as recorded after a run on a library; None if there was no such run.
        cycles: cycles of the model, None if none were recorded.
        recorded_cycles: cycles of the hardware.
        notes: what differs, or why it was refused.
    """

    name: str
    outputs: bool | None = None
    counters: bool | None = None
    library: bool | None = None
    cycles: int | None = None
    recorded_cycles: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def error(self) -> float | None:
        """Relative error of the cycle model."""
        if self.cycles is None or not self.recorded_cycles:
            return None
        return abs(self.cycles - self.recorded_cycles) / self.recorded_cycles

    def to_json(self) -> dict[str, Any]:
        """A JSON object; absent values are left out."""
        row = {
            "id": self.name,
            "outputs": self.outputs,
            "counters": self.counters,
            "library": self.library,
            "cycles": self.cycles,
            "rtl_cycles": self.recorded_cycles,
            "error": None if self.error is None else round(self.error, 6),
            "notes": self.notes or None,
        }
        return {key: value for key, value in row.items() if value is not None}


def read_json(path: Path) -> Iterator[tuple[int, Any]]:
    """The JSON values of a file of lines, gzip or not, with their line numbers.

    Raises:
        HeronError: if the file cannot be read or a line is no JSON.
    """
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, json.loads(line)
    except (OSError, EOFError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise HeronError(f"{path}: cannot be read: {error}") from error


def read_programs(path: Path) -> Iterator[Recorded]:
    """The recorded programs of a file, one after another.

    Raises:
        HeronError: if a line misses something or holds nonsense; the message names the line.
    """
    for number, line in read_json(path):
        try:
            yield parse_program(line)
        except HeronError as error:
            raise HeronError(f"{path}, line {number}: {error.message}", error.hint) from error
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise HeronError(f"{path}, line {number}: {type(error).__name__}: {error}") from error


def parse_program(line: Mapping[str, Any]) -> Recorded:
    """Reads one recorded program."""
    config = Configuration.from_numbers(line["config"])
    image = np.zeros(int(line["memory_size"]), np.uint8)
    for address, data in _ranges(line["memory"], len(image)):
        image[address : address + len(data)] = np.frombuffer(data, np.uint8)
    return Recorded(
        name=str(line["id"]),
        config=config,
        instructions=decode_program((int(word, 16) for word in line["instructions"]), config),
        address=int(line.get("instruction_address", 0)),
        before=image,
        output=list(_ranges(line["output"], len(image))),
        counters=line["counters"],
        cycles=line.get("rtl_cycles"),
    )


def _ranges(parts: Iterable[Mapping[str, Any]], size: int) -> Iterator[tuple[int, bytes]]:
    for part in parts:
        address, data = int(part["address"]), base64.b64decode(part["bytes"], validate=True)
        if not 0 <= address <= size - len(data):
            raise HeronError(f"bytes {address} to {address + len(data)} lie outside the {size} of memory_size")
        yield address, data


def differences(recorded: Recorded, after: Bytes) -> list[str]:
    """Where memory after a run is not as recorded; bytes outside `output` must not change."""
    expected = recorded.before.copy()
    for address, data in recorded.output:
        expected[address : address + len(data)] = np.frombuffer(data, np.uint8)
    wrong = np.flatnonzero(expected != after)
    if not len(wrong):
        return []
    first = int(wrong[0])
    found, right = int(after[first]), int(expected[first])
    return [f"{len(wrong)} bytes of memory differ, the first at {first}: {found} instead of {right}"]


def compare(recorded: Recorded, checked: bool = True, library: Callable[[Recorded], Bytes] | None = None) -> Comparison:
    """Runs a recorded program and compares.

    Args:
        recorded: the program and what it should do.
        checked: a program that the checker refuses does not run.
        library: runs it elsewhere and returns the memory afterwards; its HeronError becomes a note.
    """
    result = Comparison(recorded.name, recorded_cycles=recorded.cycles)
    if checked and (found := check(recorded.instructions, recorded.config, recorded.before)):
        result.notes = [f"refused: {violation.message}" for violation in found[:3]]
        return result
    image = recorded.before.copy()
    try:
        counters = simulate(recorded.instructions, image, recorded.config).to_json()
        if recorded.cycles is not None:
            result.cycles = count_cycles(recorded.instructions, recorded.config)
    except HeronError as error:
        result.notes = [error.message]
        return result
    result.notes = differences(recorded, image)
    result.outputs = not result.notes
    wrong = {
        name for name in counters.keys() | recorded.counters.keys() if counters.get(name) != recorded.counters.get(name)
    }
    result.counters = not wrong
    result.notes += [
        f"{name} is {counters.get(name)} instead of {recorded.counters.get(name)}" for name in sorted(wrong)
    ]
    if library is not None:
        try:
            wrong_there = differences(recorded, library(recorded))
        except HeronError as error:
            wrong_there = [str(error)]
        result.library = not wrong_there
        result.notes += [f"library: {note}" for note in wrong_there]
    return result


def compare_encodings(path: Path) -> tuple[int, list[str]]:
    """Checks a file of fields and words both ways.

    Returns:
        how many instructions and micro-ops there were, and a sentence for each that differs.

    Raises:
        HeronError: if the file cannot be read.
    """
    count, wrong = 0, []
    content = _read_one(path)
    try:
        configs = {name: Configuration.from_numbers(numbers, name) for name, numbers in content["configs"].items()}
        for entry in content["instructions"]:
            count += 1
            wrong += _compare_word(entry, configs[entry["config"]])
        for entry in content["micro_ops"]:
            count += 1
            wrong += _compare_uop(entry, configs[entry["config"]])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HeronError(f"{path} holds no encodings: {type(error).__name__}: {error}") from error
    return count, wrong


def _read_one(path: Path) -> Any:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return json.loads(data)
    except (OSError, EOFError, ValueError) as error:
        raise HeronError(f"{path}: cannot be read: {error}") from error


def fields_of(instruction: Instruction) -> dict[str, Any]:
    """The fields of an instruction as the files write them."""
    names = type(instruction).__dataclass_fields__
    values = {name: getattr(instruction, name) for name in names}
    return {
        "opcode": opcode_of(instruction).name,
        **{name: value.name if hasattr(value, "name") else value for name, value in values.items()},
    }


def _compare_word(entry: Mapping[str, Any], config: Configuration) -> list[str]:
    word = int(entry["hex"], 16)
    try:
        instruction = decode_instruction(word, config)
    except HeronError as error:
        return [f"{entry['id']}: {error.message}"]
    if (found := fields_of(instruction)) != entry["fields"]:
        names = sorted(
            name for name in found.keys() | entry["fields"].keys() if found.get(name) != entry["fields"].get(name)
        )
        return [f"{entry['id']}: {name} is {found.get(name)}, not {entry['fields'].get(name)}" for name in names]
    again = encode_instruction(instruction, config)
    return [] if again == word else [f"{entry['id']}: encoded as {again:032x} instead of {word:032x}"]


def _compare_uop(entry: Mapping[str, Any], config: Configuration) -> list[str]:
    word = int(entry["hex"], 16)
    uop = decode_uop(word, config)
    if (found := {name: getattr(uop, name) for name in ("dst_idx", "src_idx", "wgt_idx")}) != entry["fields"]:
        return [f"{entry['id']}: decoded as {found} instead of {dict(entry['fields'])}"]
    again = encode_uop(uop, config)
    return [] if again == word else [f"{entry['id']}: encoded as {again:08x} instead of {word:08x}"]
