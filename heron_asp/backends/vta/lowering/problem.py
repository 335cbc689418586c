"""What a sketch has VTA do: operands, sums and summands as entries, operations after the sum, and the host's share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from heron_asp.analysis import BlockFacts
from heron_asp.analysis.finish import Done
from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.isa import Memory
from heron_asp.backends.vta.lowering.entries import Array, Dim, Entries
from heron_asp.dtypes import DTYPES
from heron_asp.intrinsics import Intrinsic
from heron_asp.sketch import Sketch
from heron_asp.terms import Term, text
from heron_asp.tir import evaluated, loads

_SLOTS = {"inp": 0, "wgt": 1}
_RESULT = "acc"


@dataclass(frozen=True)
class Problem:
    """An operator in VTA's units.

    Attributes:
        block: the operator.
        config: the device.
        copies: by copy of the sketch, e.g. `inp(a)`, the tensor as entries.
        units: elements of a step of each axis.
    """

    block: BlockFacts
    config: Configuration
    copies: Mapping[str, Entries]
    units: Mapping[str, int]

    def copy(self, kind: str) -> tuple[str, Entries]:
        """The only copy of a kind: `inp`, `wgt` or `acc`."""
        return next((name, entries) for name, entries in self.copies.items() if name.startswith(f"{kind}("))

    @property
    def summands(self) -> dict[str, Entries]:
        """What is added to the sums, by copy."""
        return {name: entries for name, entries in self.copies.items() if name.startswith("sum(")}

    @cached_property
    def chain(self) -> tuple[Done, ...]:
        """The operations after the sum; what a store does by itself is none."""
        return tuple(done for done in self.block.chain if done.operation != "cast")

    @property
    def least_cycles(self) -> int:
        """Cycles that no program can beat: one micro-op a cycle, all that is read once over the bus."""
        steps = prod(-(-axis.extent // self.units[axis.name]) for axis in self.block.axes)
        read = sum(one.data_bytes for one in self.copies.values() if one.memory is not Memory.OUT)
        return max(steps, -(-read * 8 // self.config.bus_bits))

    # -- the host's share ------------------------------------------------------------------------------------------

    def operands(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The tensors of each copy but the result's, from the operator's inputs: paddings and permutations are done."""
        given = {one.name: inputs[one.name].reshape(one.shape) for one in self.block.parameters}
        made = {}
        for tensor in self.block.operands:
            stage = tensor.stage
            if stage is None:
                made[tensor.name] = given[tensor.name].reshape(tensor.shape)
                continue
            grid = np.ogrid[tuple(slice(size) for size in tensor.shape)]
            values = evaluated(stage.value, dict(zip(stage.variables, grid, strict=True)), given)
            made[tensor.name] = np.broadcast_to(values, tensor.shape)
        every = given | made
        return {name: every[one.tensor] for name, one in self.copies.items() if one.memory is not Memory.OUT}

    def result(self, sums: Array) -> Array:
        """The operator's result from what the device has stored of each sum: each goes to its place."""
        finish = self.block.finish
        if finish is None:
            return sums
        grid = np.ogrid[tuple(slice(size) for size in finish.parameter.shape)]
        variables = dict(zip(finish.stage.variables, grid, strict=True))
        load = next(one for one in loads(finish.stage.value) if str(one.source.name) == finish.source)
        places = tuple(evaluated(index, variables, {}) for index in load.indices)
        found: Array = np.broadcast_to(sums[places], finish.parameter.shape)
        return found


def problem_of(block: BlockFacts, sketch: Sketch, intrinsic: Intrinsic, config: Configuration) -> Problem:
    """What a sketch of an operator asks of a device."""
    roles = {text(role): text(axis) for _, role, axis in sketch.of("maps")}
    units = {axis.name: 1 for axis in block.axes} | {axis: intrinsic.extents[role] for role, axis in roles.items()}
    layouts: dict[str, list[int]] = {}
    for copy, _, part in sketch.of("layout"):
        assert isinstance(part, Term)
        layouts.setdefault(text(copy), []).append(int(str(part.arguments[0])))
    copies = {}
    for copy, _, tensor, scope in sketch.of("copy"):
        kind, name = text(copy).partition("(")[0], text(tensor)
        slot = _SLOTS.get(kind)
        indices = intrinsic.result.index if slot is None else intrinsic.operands[slot].index
        reader = _Reader(block, units, roles)
        memory = Memory.OUT if kind == _RESULT else Memory[text(scope).upper()]
        copies[text(copy)] = reader.entries(name, memory, layouts.get(text(copy), []), indices)
    return Problem(block, config, copies, units)


@dataclass(frozen=True)
class _Reader:
    """Reads tensors off the operator."""

    block: BlockFacts
    units: Mapping[str, int]
    roles: Mapping[str, str]

    def entries(self, name: str, memory: Memory, order: list[int], indices: tuple[str, ...]) -> Entries:
        tensor = next((one for one in (*self.block.operands, self.block.result) if one.name == name), None)
        terms: dict[int, list[tuple[str, int]]] = {}
        if tensor is not None:
            shape: tuple[int, ...] = tensor.shape
            for access in self.block.accesses:
                if access.tensor == name:
                    terms.setdefault(access.dim, []).append((access.axis, access.stride))
        else:
            shape = next(one.shape for one in self.block.parameters if one.name == name)
            result = self.block.result.name
            for dim, place in enumerate(self.block.summands[name]):
                if place >= 0:
                    terms[dim] = [(access.axis, 1) for access in self.block.of(result, place)]
        starts = {dim: tensor.start(dim) if tensor is not None else 0 for dim in range(len(shape))}
        dims = tuple(self._dim(name, dim, tuple(terms[dim]), starts[dim], shape[dim]) for dim in order)
        mapped = {axis: dim for dim, on in terms.items() for axis, _ in on}
        inside = tuple((mapped.get(self.roles[role], -1), self.units[self.roles[role]]) for role in indices)
        fixed = {dim: starts[dim] for dim in range(len(shape)) if dim not in order}
        return Entries(name, memory, dims, inside, self._dtype(name, memory), fixed)

    def _dim(self, name: str, dim: int, terms: tuple[tuple[str, int], ...], start: int, size: int) -> Dim:
        unit = self.units[terms[0][0]] if len(terms) == 1 else 1
        extent = -(-size // unit)
        operand = next((one for one in self.block.operands if one.name == name), None)
        border = self.block.border(operand, dim) if operand is not None and unit == 1 else None
        return Dim(dim, terms, start, unit, extent, border or (0, extent))

    def _dtype(self, name: str, memory: Memory) -> np.dtype[Any]:
        if memory is Memory.OUT:
            return np.dtype(DTYPES[self.block.stored].storage)
        if memory is Memory.ACC:
            return np.dtype(DTYPES[self.block.result.dtype].storage)
        operand = next(one for one in self.block.operands if one.name == name)
        return np.dtype(DTYPES[operand.dtype].storage)
