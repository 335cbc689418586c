"""Programs that are right, and the same without one of their barriers or waits."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator_mutations import Mutant, mutants

from heron_asp.backends.cuda.emulator import (
    Copies,
    EmulationError,
    Order,
    compile_program,
    schedules,
    unwritten,
    verify,
)
from tests.cuda_kernels import PROGRAMS, Case, Gemm, gemm_case

# What can be left out, and why nothing is lost: all else has to be found.
HARMLESS = {
    ("wmma half", "barrier 2 left out"): "a warp's sums replace only the rows of `a` that it alone has read",
    ("wmma registers", "barrier 1 left out"): "the second of two buffers is written, the first one is being read",
    ("row sums", "barrier 1 left out"): "the thread that reads the sum is the one that wrote it",
}
MUTATED = (
    "wmma static",
    "wmma half",
    "wmma int8",
    "wmma registers",
    "wmma 2 stages",
    "wmma 3 stages",
    "mma 3 stages",
    "row sums",
)


@cache
def case_of(name: str) -> Case:
    return PROGRAMS[name]()


def judge(case: Case, outputs: dict[str, np.ndarray]) -> str:
    wrong = [name for name, value in case.expected.items() if not np.array_equal(outputs[name], value)]
    return f"{wrong} differ" if wrong else ""


@pytest.mark.parametrize("name", PROGRAMS)
def test_correct_programs_pass_under_all_schedules(name: str) -> None:
    case = case_of(name)
    emulated = compile_program(case.program)
    verify(emulated, case.arrays, lambda outputs: judge(case, outputs))
    assert judge(case, emulated.run(case.arrays, Order.RANDOM)) == ""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mutants of a program share their source, and are compiled once."""
    return tmp_path_factory.mktemp("emulator")


def found(case: Case, mutant: Mutant, folder: Path, *schedule: Any) -> bool:
    try:
        return judge(case, compile_program(mutant.program, folder).run(case.arrays, *schedule)) != ""
    except EmulationError:
        return True


@pytest.mark.parametrize("name", MUTATED)
def test_what_synchronizes_cannot_be_left_out_unseen(name: str, folder: Path) -> None:
    case = case_of(name)
    tried = mutants(case.program)
    assert len(tried) >= 2
    left = {(name, one.what) for one in tried if not any(found(case, one, folder, *each) for each in schedules())}
    assert left == {key for key in HARMLESS if key[0] == name}


FORWARD, REVERSE = Order.FORWARD, Order.REVERSE
LATE, EARLY = Copies.LATE, Copies.EARLY


@pytest.mark.parametrize(
    ("name", "what", "by"),
    [
        ("row sums", "barrier 0 left out", {(FORWARD, LATE), (FORWARD, EARLY)}),
        ("wmma static", "barrier 2 left out", {(REVERSE, LATE), (REVERSE, EARLY)}),
        ("mma 3 stages", "barrier 0 left out", {(FORWARD, EARLY), (REVERSE, EARLY)}),
        ("mma 3 stages", "wait 0 left out", {(FORWARD, LATE), (REVERSE, LATE)}),
    ],
)
def test_no_schedule_is_superfluous(name: str, what: str, by: set[tuple[Order, Copies]], folder: Path) -> None:
    case = case_of(name)
    mutant = next(one for one in mutants(case.program) if one.what == what)
    assert {schedule for schedule in schedules() if found(case, mutant, folder, *schedule)} == by


def test_a_wrong_result_is_an_error_that_names_the_schedule() -> None:
    case = case_of("wmma")
    with pytest.raises(EmulationError, match=r"forward order and late copies: no such thing"):
        verify(compile_program(case.program), case.arrays, lambda outputs: "no such thing")


def test_some_blocks_of_a_large_grid() -> None:
    case = gemm_case(Gemm(m=128, n=128, k=32))
    outputs = compile_program(case.program).run(case.arrays, sample_blocks=3)
    there = ~unwritten(outputs["C"])
    assert there.sum() == 3 * 32 * 32
    assert there[0, 0]
    assert there[-1, -1]
    np.testing.assert_array_equal(outputs["C"][there], case.expected["C"][there])


def test_a_folder_keeps_what_was_compiled(folder: Path) -> None:
    program = case_of("wmma").program
    before = set(folder.glob("*.so"))
    first = compile_program(program, folder)
    (made,) = set(folder.glob("*.so")) - before
    stamp = made.stat().st_mtime_ns
    assert compile_program(program, folder) == first
    assert made.stat().st_mtime_ns == stamp


def test_the_schedules_are_four() -> None:
    assert len(set(schedules())) == 4


@pytest.mark.parametrize(
    ("gemm", "words"),
    [
        (Gemm(pad=4), "misaligned access"),  # rows of 36 halves, vectors of eight
        (Gemm(pad=4, vector=4), "load_matrix_sync.*multiple of 16 bytes, and is 36 elements of 2"),
        (Gemm(pad_sum=2), "store_matrix_sync.*and is 34 elements of 4"),
    ],
)
def test_paddings_that_no_compiler_complains_about(gemm: Gemm, words: str) -> None:
    case = gemm_case(gemm)
    with pytest.raises(EmulationError, match=words):
        compile_program(case.program).run(case.arrays)
