"""Folders that are measured here, and on another machine that is this one behind an `ssh` of the tests."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from heron_asp.backends.cuda.measured import Host, Local, read_results, run_jobs
from heron_asp.backends.cuda.worker.options import Options
from heron_asp.errors import ExitCode, HeronError
from heron_asp.measure.result import Status
from tests.backends.cuda.folders import COLD, WARM, entry_of, kernel_of, usual, write

SSH = """#!/bin/sh
# A host without heron_asp: its home is a folder beside this file.
[ "$1" = far ] || { echo "ssh: Could not resolve hostname $1: Name or service not known" >&2; exit 255; }
cd "$(dirname "$0")/home" && unset PYTHONPATH && shift && exec sh -c "$*"
"""


@pytest.fixture
def options(fake_driver: Path) -> Options:
    return Options(str(fake_driver), timing=0.001)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    script = tmp_path / "ssh"
    script.write_text(SSH)
    script.chmod(0o755)
    (tmp_path / "home").mkdir()
    return Host("far", "jobs of mine", os.fspath(Path(Local().python)), (str(script),))


def test_results_are_read_as_they_are_measured(emulated: Path, tmp_path: Path, options: Options) -> None:
    folder = write(tmp_path / "jobs", usual(emulated)[:3])
    said: list[str] = []
    found = run_jobs(folder, Local(), options, said.append)
    assert found.device
    assert (found.device.name, found.device.architecture, found.device.multiprocessors) == ("fake device", "sm_80", 4)
    product, _, wrong = found.candidates
    assert (product.name, product.status) == ("product", Status.CORRECT)
    assert product.cold
    assert product.warm
    assert (product.cold.median, product.warm.minimum) == (pytest.approx(COLD), pytest.approx(WARM))
    assert (product.kernels[0].registers, product.kernels[0].occupancy) == (32, 8)
    assert (wrong.status, wrong.cold) == (Status.CORRECTNESS, None)
    assert "1 of 256 elements are wrong" in wrong.error
    assert [line.split(":")[0] for line in said] == ["1/3 product", "2/3 doubled", "3/3 wrong"]


def test_another_machine_measures_the_same(emulated: Path, tmp_path: Path, options: Options, host: Host) -> None:
    here = run_jobs(write(tmp_path / "here", usual(emulated)), Local(), options)
    folder = write(tmp_path / "there", usual(emulated))
    said: list[str] = []
    there = run_jobs(folder, host, options, said.append)
    assert there == here
    assert len(said) == len(there.candidates)
    assert len(list((tmp_path / "home" / "jobs of mine").glob("there-*/worker.pyz"))) == 1


def test_a_remote_run_goes_on_from_the_results_here(
    emulated: Path, tmp_path: Path, options: Options, host: Host
) -> None:
    folder = write(tmp_path / "jobs", [entry_of(emulated, kernel_of(name)) for name in ("one", "two", "three")])
    run_jobs(folder, Local(), options)
    file = folder / "results.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:3]))
    said: list[str] = []
    found = run_jobs(folder, host, options, said.append)
    assert [one.name for one in found.candidates] == ["one", "two", "three"]
    assert [line.split(":")[0] for line in said] == ["3/3 three"]


def test_folders_that_are_called_alike_do_not_share_results(
    emulated: Path, tmp_path: Path, options: Options, host: Host
) -> None:
    for kernel, status in (("product", Status.CORRECT), ("wrong", Status.CORRECTNESS)):
        (tmp_path / kernel).mkdir()
        folder = write(tmp_path / kernel / "jobs", [entry_of(emulated, kernel_of(kernel), name="only")])
        (found,) = run_jobs(folder, host, options).candidates
        assert (found.name, found.status) == ("only", status)


def test_failures_of_the_way_and_of_the_machine_are_told_apart(
    emulated: Path, tmp_path: Path, options: Options, host: Host
) -> None:
    folder = write(tmp_path / "jobs", usual(emulated)[:1])
    for where, said, hint in (
        (
            replace(host, name="nowhere"),
            "ssh to nowhere, copying the candidates: ssh: Could not resolve",
            "has to work",
        ),
        (replace(host, ssh=("no-such-ssh",)), "no-such-ssh is not on this machine", "ssh client"),
        (replace(host, python="no-such-python"), "far: .*no-such-python", "with numpy"),
    ):
        with pytest.raises(HeronError, match=said) as raised:
            run_jobs(folder, where, options)
        assert hint in raised.value.hint
    with pytest.raises(HeronError, match=r"far: no CUDA driver: libnothing\.so") as raised:
        run_jobs(folder, host, replace(options, driver="libnothing.so"))
    assert (raised.value.code, raised.value.hint) == (ExitCode.MISSING, "--driver names its library")
    with pytest.raises(HeronError, match=r"no CUDA driver: libnothing\.so"):
        run_jobs(folder, Local(), replace(options, driver="libnothing.so"))
    assert read_results(folder).candidates == ()


def test_lines_that_are_none_of_the_workers(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text('{"id": "one", "status": "runtime", "error": "why"}\n{"id": "two", "sta')
    assert [one.name for one in read_results(tmp_path).candidates] == ["one"]
    for line in ('{"id": "one", "status": "odd"}', "no JSON", '{"device": {"name": "x"}}'):
        file.write_text(line + "\n")
        with pytest.raises(HeronError, match=r"results\.jsonl, line 1: "):
            read_results(tmp_path)
