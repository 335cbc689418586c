"""Random operators on random machines with random rules of one's own: the circuit against clingo's enumeration.

    python -m tests.space.soak --seconds 600

Counts, counts under pins, samples and marginals must be those of the enumerated programs.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from heron_asp.operators import operator
from heron_asp.resources import targets_folder
from heron_asp.space import SketchSpace, SpaceLimits, is_shown
from heron_asp.space.candidate import Values
from heron_asp.target import Target, load_target
from heron_asp.task import Task
from heron_asp.terms import Value, from_symbol, text

MOST = 4_000  # programs to enumerate


def random_task(rng: random.Random, folder: Path) -> Task:
    """A small task: an operator, a machine, threads, rules of thumb that are lifted, rules of one's own."""
    extents = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 20, 24, 31, 32, 48]
    name = rng.choice(["gemm", "gemm", "batch_matmul", "gemv"])
    keys = {"gemm": "mnk", "gemv": "mk"}.get(name, "bmnk")
    shape = {("batch" if key == "b" else key): rng.choice(extents) for key in keys}
    dtype = rng.choice(["u8s8s32", "bf16bf16f32", "f32f32f32"])
    target = random_target(rng, folder)
    relaxed = rng.sample(sorted(target.pays), rng.randrange(3)) if rng.random() < 0.5 else []
    rules = []
    if rng.random() < 0.7:
        file = folder / f"own{rng.randrange(10**9)}.lp"
        file.write_text(own_rules(rng))
        rules.append(file)
    limits = SpaceLimits(seconds=None)
    return Task(operator(name, shape, dtype), target, rng.choice([1, 1, 2, 4]), rules, relaxed, limits=limits)


def random_target(rng: random.Random, folder: Path) -> Target:
    """A machine with other numbers."""
    name = rng.choice(["zen4", "cascadelake", "sapphirerapids"])
    source = (targets_folder() / f"{name}.toml").read_text()
    source = source.replace("vector_registers = 32", f"vector_registers = {rng.choice([8, 16, 32])}")
    file = folder / f"{name}{rng.randrange(10**9)}.toml"
    l2 = rng.choice([16_384, 65_536, 1_048_576])
    lines = source.splitlines()
    at = lines.index('name = "l2"') + 1
    lines[at] = f"capacity = {l2}"
    l1 = lines.index('name = "l1"') + 1
    lines[l1] = f"capacity = {l2 // 4}"
    file.write_text("\n".join(lines) + "\n")
    return load_target(file)


def own_rules(rng: random.Random) -> str:
    """Constraints over tiles: comparisons, products, aggregates, negation, definitions."""
    axes, levels = ["m", "n", "k", "Axis"], ["task", "slice", "block", "strip", "unroll", "register", "Level"]

    def variable() -> str:
        return f"tile(c, {rng.choice(axes)}, {rng.choice(levels)})".replace("c,", "Block,")

    def literal(number: int) -> str:
        bound = rng.randrange(1, 24)
        kinds = [
            f"value({variable()}, X{number}), X{number} > {bound}",
            f"value({variable()}, {rng.choice([1, 2, 4])})",
            f"block(Block), tile(Block, Axis, Level), not value(tile(Block, Axis, Level), {rng.choice([1, 2, 4])})",
            f"value({variable()}, X{number}), value({variable()}, Y{number}), X{number} * Y{number} > {bound}",
            f"block(Block), #sum {{ X, V : value(V, X), few(Block, V) }} > {bound}",
            f"block(Block), #count {{ V : value(V, X), few(Block, V), X > 1 }} {rng.choice(['>', '=', '<'])} 2",
            "block(Block), large(Block)",
            "block(Block), not large(Block)",
        ]
        return rng.choice(kinds)

    lines = [
        "#program space.",
        "few(Block, tile(Block, Axis, Level)) :- tile(Block, Axis, Level), Level != unit, Level != task.",
        f"large(Block) :- value(tile(Block, _, register), X), X > {rng.randrange(1, 9)}.",
    ]
    lines += [f":- {', '.join(literal(i) for i in range(rng.randrange(1, 3)))}." for _ in range(rng.randrange(1, 3))]
    return "\n".join(lines) + "\n"


def enumerated(part: SketchSpace) -> list[Values] | None:
    """All programs by clingo; None if there are too many."""
    control = part.control()
    control.configuration.solve.models = MOST + 1
    control.ground([("base", [])])
    found = []
    with control.solve(yield_=True) as handle:
        for model in handle:
            found.append({from_symbol(a.arguments[0]): from_symbol(a.arguments[1]) for a in model.symbols(shown=True)})
    return found if len(found) <= MOST else None


def check(part: SketchSpace, rng: random.Random) -> int:
    """Compares a sketch's space with its enumeration; returns the number of programs, 0 if there are too many.

    Raises:
        AssertionError: they differ.
    """
    if part.compiled.bound() > MOST:
        return 0
    models = enumerated(part)
    if models is None:
        return 0
    where = f"{part.name}: {part.sketch.of('axis')}, own rules {[str(one.node) for one in part.own.constraints]}"
    if not part.exact:  # a constraint of one's own over too many variables: its count is an estimate
        bound = part.compiled.bound()
        expected = len(models) / bound
        if part.compiled.acceptance == 0.0:  # refused with an error: right where hardly any sample is a program
            assert expected <= 20 / 65_536, where
            return 0
        assert abs(part.size - len(models)) <= 5 * bound * (expected * (1 - expected) / 65_536) ** 0.5 + 1, where
    else:
        assert part.size == len(models), f"{part.size} for {len(models)}: {where}"
    if not models:
        return 0
    shown = [variable for variable in part.variables if is_shown(variable)]
    chosen: list[Value] = rng.sample(shown, min(3, len(shown)))
    pins = {variable: frozenset(rng.choice(models)[variable] for _ in range(2)) for variable in chosen}
    inside = [one for one in models if all(one[variable] in allowed for variable, allowed in pins.items())]
    assert not part.exact or part.count(pins) == len(inside), f"under {pins}: {where}"
    generator = np.random.default_rng(rng.randrange(2**32))
    known = {tuple(text(one[variable]) for variable in shown) for one in inside}
    for number in (1, 6):
        for one in part.sample(number, generator, pins):
            assert tuple(text(one.values[variable]) for variable in shown) in known, where
    for one, where_pinned in zip(part.sample_each([{}, pins], 3, generator), (models, inside), strict=True):
        assert len(one) == 3 or not where_pinned, f"too few: {where}"
        among = {tuple(text(model[variable]) for variable in shown) for model in where_pinned}
        assert all(tuple(text(found.values[variable]) for variable in shown) in among for found in one), where
    for variable in chosen if part.exact else ():
        counts = Counter(one[variable] for one in models)
        for value, share in part.marginals()[variable].items():
            assert abs(share - counts[value] / len(models)) < 1e-9, where
    return len(models)


def loosened(part: SketchSpace, rng: random.Random) -> None:
    """The same space with some restrictions left to rejection: samples are programs, and the estimate is near.

    Raises:
        AssertionError: they are not.
    """
    from heron_asp.space.compiled import compile_program

    program = part.program
    if program.unsatisfiable or not part.exact or part.size == 0:
        return
    left = [replace(one, tables=()) if rng.random() < 0.4 else one for one in program.restrictions]
    loose = compile_program(replace(program, restrictions=left), 10**6)
    expected = part.size / max(1, loose.bound())
    error = 5 * (expected * (1 - expected) / 65_536) ** 0.5 + 1e-9
    assert abs(loose.acceptance - expected) <= error, f"{loose.acceptance} for {expected}: {part.name}"


def main() -> None:
    """Checks random spaces until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    end = time.monotonic() + arguments.seconds
    spaces = programs = 0
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder:
            task = random_task(rng, Path(folder))
            for part in task.space:
                programs += check(part, rng)
                loosened(part, rng)
                spaces += 1
    sys.stdout.write(f"{spaces} spaces with {programs} programs in {arguments.seconds:g} s, no difference\n")


if __name__ == "__main__":
    main()
