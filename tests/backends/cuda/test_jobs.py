"""Folders of candidates: what is written is read, what does not fit is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_asp.backends.cuda.jobs import Data, Entry, Expected, Problem, data_of, read_jobs, write_jobs
from heron_asp.backends.cuda.program import Buffer, Kernel, Program, Use
from heron_asp.backends.cuda.worker.data import compare, drawn, numbers, stored
from heron_asp.errors import HeronError, InternalError
from heron_asp.measure.data import cases
from heron_asp.operators import operator
from tests.backends.cuda.folders import A, B, C, entry_of, kernel_of, problem


@pytest.fixture
def cubin(tmp_path: Path) -> Path:
    file = tmp_path / "cubin"
    file.write_bytes(b"code")
    return file


def test_what_is_written_is_read(tmp_path: Path, cubin: Path) -> None:
    entry = replace(entry_of(cubin, kernel_of("product")), registers={"product": 96}, notes={"modelled": 1e-6})
    written = write_jobs(tmp_path / "jobs", problem(), [entry, replace(entry, name="again")])
    assert read_jobs(tmp_path / "jobs") == written
    job = written.candidates[0]
    assert (job.kernels[0].registers, job.notes) == (96, {"modelled": 1e-6})
    assert len(list((tmp_path / "jobs" / "cubins").iterdir())) == 1, "equal code is one file"
    assert not list((tmp_path / "jobs").glob("*.new"))


def test_the_data_of_other_backends_are_taken(tmp_path: Path) -> None:
    """Cases of bfloat16 have arrays that numpy cannot save, and tolerances of each element."""
    made = operator("gemm", {"m": 8, "n": 8, "k": 8}, "bf16bf16f32")
    output = made.result.name
    uses = {spec.name: Use.OUTPUT if spec.name == output else Use.INPUT for spec in made.tensors}
    kinds = {"bf16": "bfloat16", "f32": "float32"}
    buffers = tuple(Buffer(one.name, kinds[one.dtype.name], one.shape, uses[one.name]) for one in made.tensors)
    every = cases(made)
    jobs = write_jobs(tmp_path, Problem("gemm", "sm_80", buffers, [data_of(case, output) for case in every]), [])
    for case, said in zip(every, jobs.cases, strict=True):
        for name, array in case.inputs.items():
            file = said.inputs[name].file
            assert file
            assert np.load(tmp_path / file).tobytes() == array.tobytes()
        exact = case.expected.reshape(-1)
        expected = said.results[output].model_dump()
        assert compare(exact.astype(np.float32), expected, tmp_path)[0] == ""
        assert case.tolerance is not None
        beyond = exact + 3 * case.tolerance.reshape(-1)
        assert "64 of 64 elements are wrong" in compare(beyond, expected, tmp_path)[0]


@given(st.floats(-1e30, 1e30), st.floats(0, 1e20), st.floats(-1, 1))
def test_saving_in_fewer_bits_forbids_nothing(
    tmp_path_factory: pytest.TempPathFactory, value: float, tolerance: float, share: float
) -> None:
    """A result within the tolerance of the exact value is within that of the saved one."""
    folder = tmp_path_factory.getbasetemp()
    buffer = Buffer("c", "float32", (1,), Use.OUTPUT)
    result = np.array([value + share * tolerance])
    if abs(result[0] - value) <= tolerance:
        data = Data("one", {}, {"c": Expected(np.array([value]), np.array([tolerance]))})
        jobs = write_jobs(folder, Problem("one", "sm_80", (buffer,), (data,)), [])
        assert compare(result, jobs.cases[0].results["c"].model_dump(), folder)[0] == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda jobs: jobs.pop("version"), "version: Field required"),
        (lambda jobs: jobs.update(version=2), "version: Input should be 1"),
        (lambda jobs: jobs.update(more=1), "more: Extra inputs are not permitted"),
        (lambda jobs: jobs["candidates"][0].update(cubin="../x"), "../x is not in the folder"),
        (lambda jobs: jobs["candidates"][0].update(cubin="/x"), "/x is not in the folder"),
        (lambda jobs: jobs["candidates"][0]["kernels"][0].update(grid=[0, 1, 1]), "grid.0: Input should be greater"),
        (lambda jobs: jobs["candidates"][0]["kernels"][0].update(arguments=["a", "x"]), "no buffer is called x"),
        (lambda jobs: jobs["candidates"].append(jobs["candidates"][0]), "two candidates have the same id"),
        (lambda jobs: jobs["cases"][0]["inputs"].pop("a"), "its inputs are not the buffers that are inputs"),
        (lambda jobs: jobs["cases"][0]["inputs"]["a"].update(file=None), "either a file or drawn"),
    ],
)
def test_damaged_folders_are_told(
    tmp_path: Path, cubin: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    write_jobs(tmp_path, problem(), [entry_of(cubin, kernel_of("product"))])
    jobs = json.loads((tmp_path / "jobs.json").read_text())
    change(jobs)
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    with pytest.raises(HeronError) as raised:
        read_jobs(tmp_path)
    assert said in raised.value.message
    assert raised.value.hint


def test_no_folder_and_old_results(tmp_path: Path, cubin: Path) -> None:
    with pytest.raises(HeronError, match=r"jobs\.json: No such file"):
        read_jobs(tmp_path)
    (tmp_path / "results.jsonl").touch()
    with pytest.raises(HeronError, match="holds results of other candidates"):
        write_jobs(tmp_path, problem(), [])


def test_what_does_not_fit_is_a_defect_of_the_caller(tmp_path: Path, cubin: Path) -> None:
    usual = problem()
    small = replace(usual.cases[0], inputs={"a": np.zeros(4, np.float32), "b": np.zeros((16, 16), np.float32)})
    few = replace(usual.cases[0], results={"c": Expected(np.zeros(3))})
    for case, said in ((small, "input a has 16 bytes"), (few, "3 elements of c are expected, not 256")):
        with pytest.raises(InternalError, match=said):
            write_jobs(tmp_path, replace(usual, cases=[case]), [])
    other = Program("", (Kernel("k", (1, 1, 1), (1, 1, 1), 0, 0, ("a",)),), (A, B))
    with pytest.raises(InternalError, match="does not have the buffers"):
        write_jobs(tmp_path, usual, [Entry("one", other, b"")])
    assert C not in other.buffers


def test_numbers_are_drawn_the_same_everywhere() -> None:
    """From seed 0 they begin as those of splitmix64; its last step does not reach the upper bits, which are used."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert drawn(0, 3, 0, 2**31 - 1).tolist() == [one >> 33 for one in published]
    values = drawn(7, 10_000, -2, 3)
    assert (values.min(), values.max()) == (-2, 3)
    assert len(np.unique(drawn(7, 10_000, -2, 3) - drawn(8, 10_000, -2, 3))) > 1


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=9))
def test_bfloat16_is_rounded_as_ml_dtypes_does(values: list[float]) -> None:
    array = np.array(values, np.float32)
    with np.errstate(over="ignore"):
        wanted = array.astype(ml_dtypes.bfloat16)
    found = stored(array, "bfloat16")
    assert found.tobytes() == wanted.tobytes()
    assert numbers(found, "bfloat16").tobytes() == wanted.astype(np.float32).tobytes()
