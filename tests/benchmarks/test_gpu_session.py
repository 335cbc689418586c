"""A session from its candidates to its report, on the fake driver; and what PyTorch is called with, on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu_session
import numpy as np
import pytest
from gpu.offers import candidates_of
from gpu.peer import NoPeerError, measure
from gpu.prepare import Case, Offer, data_of, is_exact, narrowed, prepare
from gpu.report import cells, markdown, notes, report, spearman
from gpu.there import run

from heron_asp.backends.cuda.emulator import compile_program
from heron_asp.backends.cuda.jobs import Drawn, Problem, read_jobs, write_jobs
from heron_asp.backends.cuda.model import Work
from heron_asp.backends.cuda.program import Buffer, Program, Use
from heron_asp.backends.cuda.worker import pack
from heron_asp.errors import HeronError
from heron_asp.operators import Operator, operator
from heron_asp.resources import targets_folder
from heron_asp.target import load_target
from tests.backends.cuda.folders import A, B, C, kernel_of

WORK = Work(1, 16, 16, 16, (16, 16, 16), (16, 16), (16, 16, 16), 16, 4096)
A100 = load_target(targets_folder() / "a100.toml")
PRODUCT = Case("P", operator("gemm", {"m": 16, "n": 16, "k": 16}, "f32f32f32"), A100)


def offers(case: Case) -> Iterator[Offer]:
    """Samples that take 256, 512, ... us and that the model orders but for one; a wrong one, one that is refused."""
    for number, modelled in enumerate((1, 2, 4, 3), start=1):
        program = Program("right", (kernel_of("product", 1000 * number, shared=4096),), (A, B, C))
        yield Offer(f"right-{number}", program, WORK, modelled * 1e-6)
    yield Offer("wrong", Program("right", (kernel_of("wrong"),), (A, B, C)), WORK, 5e-6)
    yield Offer("refused", Program("refused", (kernel_of("product"),), (A, B, C)), WORK, 6e-6)
    yield Offer("unmade", None, WORK, 7e-6, error="not made: why")
    yield Offer("best", Program("right", (kernel_of("product", 800),), (A, B, C)), WORK, 5e-7, "modelled")


@dataclass
class Compiler:
    cubin: bytes
    calls: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, source: str, architecture: str) -> Any:
        self.calls.append((source, architecture))
        if source == "refused":
            raise HeronError("ptxas: too much shared data")
        kernel = SimpleNamespace(registers=32)
        return SimpleNamespace(cubin=self.cubin, resources={"product": kernel, "wrong": kernel})


@pytest.fixture
def session(tmp_path: Path, emulated: Path) -> Path:
    said: list[str] = []
    compiler = Compiler(emulated.read_bytes())
    prepare(tmp_path / "session", [PRODUCT], offers, compiler, 60, 2, said.append)
    assert len(compiler.calls) == 7
    (line,) = said
    assert line.startswith("P: 6 of 8 compiled {")
    assert "'ptxas: too much shared data': 1" in line
    assert "'not made: why': 1" in line
    names = [job.id for job in read_jobs(tmp_path / "session" / "P").candidates]
    assert names == ["right-1", "right-2", "right-3", "right-4", "wrong", "best"], "in the order in which they came"
    return tmp_path / "session"


def test_a_session_from_candidates_to_report(session: Path, fake_driver: Path) -> None:
    assert run(session, 100, str(fake_driver)) == 0
    found = report(session)
    (row,) = found["cases"]
    assert (row["measured"], row["compiled"], row["offered"]) == (6, 6, 8)
    assert row["status"] == {"correct": 5, "correctness": 1}
    assert (row["valid_samples"], row["samples"]) == (4, 7)
    best = row["best"]["warm"]
    assert (best["name"], best["kind"], best["seconds"]) == ("best", "modelled", pytest.approx(800 * 256e-9))
    assert best["tflops"] == pytest.approx(2 * 16**3 / (800 * 256e-9) / 1e12)
    assert row["ranks"]["cold"] == {"spearman": pytest.approx(0.8), "regret": pytest.approx(1.0), "samples": 4}
    resources = row["resources"]
    assert (resources["candidates"], resources["unlike_the_compiler"]) == (6, [])
    assert sorted(resources["shared_bytes_unlike_the_rules"]) == ["best", "wrong"], "they ask for none, of 4096 bytes"
    assert resources["registers_over_the_rules"] == {"least": 2.0, "median": 2.0, "most": 2.0}
    assert found["peer_missing"]
    text = markdown(found)
    assert "| P | 6 of 6 | 4 of 7 | 307.2 us | 204.8 us |" in text
    assert f"no peer: {found['peer_missing']}" in text
    assert "P: the first error: drawn inputs: 1 of 256 elements are wrong" in text


def test_the_command_prints_and_writes(session: Path, fake_driver: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = session.parent / "results.tar"
    options = ["--driver", str(fake_driver), "--limit", "100", "--pack", str(packed)]
    assert gpu_session.main(["run", str(session), *options]) == 0
    with tarfile.open(packed) as archive:
        assert archive.getnames() == ["P/results.jsonl", "peers.jsonl"]
    assert gpu_session.main(["report", str(session)]) == 0
    out = capsys.readouterr().out
    assert "fake device, sm_80, driver 13000" in out
    assert json.loads((session / "report.json").read_text())["device"]["name"] == "fake device"
    assert (session / "report.md").read_text().startswith("| case | measured |")


def test_what_runs_there_needs_nothing_of_heron_asp(session: Path, fake_driver: Path) -> None:
    """The script is started without the folder of heron_asp on the path, as on a machine that has not installed it."""
    code = "import sys; sys.modules['heron_asp'] = None; sys.argv = sys.argv[1:]; import runpy; "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    script = Path(gpu_session.__file__)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", code, str(script), "run", str(session), "--driver", str(fake_driver), "--no-peer"]
    environment["PYTHONPATH"] = str(script.parent)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert report(session)["cases"][0]["measured"] == 6


def test_no_time_no_driver_and_another_device(
    session: Path, fake_driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(session, 0, str(fake_driver), peer=False) == 0
    with pytest.raises(HeronError, match="nothing was measured"):
        report(session)
    assert run(session, 60, "libnothing.so", peer=False) == 5
    monkeypatch.setenv("FAKE_ARCHITECTURE", "90")
    assert run(session, 60, str(fake_driver), peer=False) == 2


def test_preparing_ends_with_its_budget(tmp_path: Path, emulated: Path) -> None:
    compiler = Compiler(emulated.read_bytes())

    def slowly(source: str, architecture: str) -> Any:
        time.sleep(0.2)
        return compiler(source, architecture)

    def many(case: Case) -> Iterator[Offer]:
        for number in range(10**6):
            program = Program("right", (kernel_of("product"),), (A, B, C))
            yield Offer(str(number), program, WORK, 1e-6)

    (done,) = prepare(tmp_path / "session", [PRODUCT], many, slowly, 1.0, 2, str)
    assert 1 <= done.compiled == done.offered == len(compiler.calls) < 100


def test_a_peer_is_compared(session: Path, fake_driver: Path) -> None:
    run(session, 100, str(fake_driver), peer=False)
    times = {"median": 409.6e-6, "minimum": 400e-6, "runs": 21, "calls": 1}
    line = {"case": "P", "what": "torch.matmul", "cold": times, "warm": times, "worst": 0.0, "wrong": "1 of 256"}
    (session / "peers.jsonl").write_text(json.dumps(line) + "\n")
    found = report(session)
    assert found["peer_missing"] == ""
    shown = cells(found["cases"][0])
    assert shown[6:9] == ["409.6 us", "1.33", "2.00"]
    assert "P: the peer's result: 1 of 256" in notes(found)


def test_what_cannot_be_prepared(session: Path, tmp_path: Path) -> None:
    with pytest.raises(HeronError, match="holds a session"):
        prepare(session, [PRODUCT], offers, Compiler(b""), 60, 2, str)

    def refused(case: Case) -> Iterator[Offer]:
        return (offer for offer in offers(case) if offer.name == "refused")

    with pytest.raises(HeronError, match="P: no candidate compiles: ptxas: too much shared data"):
        prepare(tmp_path / "other", [PRODUCT], refused, Compiler(b""), 60, 2, str)
    with pytest.raises(HeronError, match="P: no candidate compiles: none is offered in time"):
        prepare(tmp_path / "third", [PRODUCT], offers, Compiler(b""), 0, 2, str)


def test_mistakes_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = str(tmp_path / "session")
    for options, said in (
        (["prepare", where, "--cases", "G11"], "error: --cases G11: no such case"),
        (["prepare", where, "--offers", "nowhere:f"], "error: --offers nowhere:f: No module named 'nowhere'"),
        (["prepare", where, "-t", "zen4"], "error: --target zen4 is no GPU"),
        (["report", where], "session.json: No such file"),
    ):
        assert gpu_session.main(options) == 2
        assert said in capsys.readouterr().err


def test_usual_cases_are_in_the_suite() -> None:
    cases = gpu_session.cases_of(gpu_session.USUAL.split(","), "h100", "f16f16f32")
    assert [case.operator.dtype for case in cases] == ["f16f16f32"] * 8
    assert cases[0].operator.operations == 2 * 1024**3
    assert cases[0].architecture == "sm_90"


def test_whole_numbers_are_exact_where_every_sum_is() -> None:
    few, many = (operator("gemm", {"m": 4, "n": 4, "k": k}, "f16f16f16") for k in (2048, 2049))
    assert is_exact(few, np.array([2048.0]))
    assert not is_exact(many, np.array([1.0]))
    assert not is_exact(few, np.array([0.5]))
    wide = operator("gemm", {"m": 4, "n": 4, "k": 4096}, "f16f16f32")
    assert is_exact(wide, np.array([16384.0]))
    data = data_of(wide, "c")
    assert data.results["c"].tolerance is None
    assert data.inputs["a"] == Drawn(0, -2, 2)
    assert data_of(many, "c").results["c"].tolerance
    assert narrowed(np.array([1.0, -128.0])).dtype == np.int16
    assert narrowed(np.array([127.0])).dtype == np.int8
    assert narrowed(np.array([0.5])).dtype == np.float64


def test_of_large_results_a_part_is_compared() -> None:
    data = data_of(operator("gemm", {"m": 2048, "n": 1024, "k": 2}, "f16f16f32"), "c")
    expected = data.results["c"]
    assert expected.places is not None
    assert expected.values.size == expected.places.size == len(set(expected.places.tolist())) == 2**18
    assert expected.values.dtype == np.int8


def test_rank_correlation() -> None:
    assert spearman(np.array([1.0, 2, 3]), np.array([10.0, 20, 30])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    assert spearman(np.array([1.0, 1, 2, 3]), np.array([1.0, 2, 3, 4])) == pytest.approx(0.9486833)


def test_candidates_of_a_space_through_the_whole_session(tmp_path: Path, fake_driver: Path) -> None:
    """The emulator takes the place of nvcc and of the GPU: samples and the model's best are made, run and right."""

    def source(case: Case) -> Iterator[Offer]:
        return candidates_of(case, samples=3, best=2, pool=40)

    def compiler(source: str, architecture: str) -> Any:
        assert architecture == "sm_80"
        program = next(one for one in made if one.source == source)
        return SimpleNamespace(cubin=compile_program(program, tmp_path / "kept").library, resources={})

    made: list[Program] = []
    case = Case("G", operator("gemm", {"m": 64, "n": 64, "k": 64}, "f16f16f32"), A100)
    every = list(source(case))
    made += [offer.program for offer in every if offer.program]
    assert [offer.name for offer in every] == ["sample-0", "sample-1", "sample-2", "modelled-0", "modelled-1"]
    assert every[3].modelled <= every[4].modelled
    (done,) = prepare(tmp_path / "session", [case], lambda _: every, compiler, 100, 2, str)
    assert (done.compiled, done.failures) == (5, [])
    assert run(tmp_path / "session", 100, str(fake_driver), peer=False) == 0
    (row,) = report(tmp_path / "session")["cases"]
    assert (row["status"], row["valid_samples"], row["samples"]) == ({"correct": 5}, 3, 3)
    assert row["resources"]["shared_bytes_unlike_the_rules"] == []


# --- the peer, on a CPU ---

STRIDED = {"stride": 2, "padding": 1}
CALLS = [
    ("gemm", "f16f16f32", None, {"m": 24, "n": 40, "k": 33}),
    ("gemm", "s8s8s32", None, {"m": 24, "n": 40, "k": 32}),
    ("gemm", "bf16bf16f32", None, {"m": 24, "n": 40, "k": 33}),
    ("batch_matmul", "f16f16f32", None, {"batch": 3, "m": 8, "n": 5, "k": 7}),
    ("gemv", "f16f16f32", None, {"m": 24, "k": 33}),
    ("scan", "f16f16f32", None, {"m": 8, "n": 16, "k": 16}),
    ("conv1d", "f16f16f32", None, {"n": 2, "w": 19, "ci": 4, "co": 6, "kw": 3, **STRIDED}),
    ("conv2d", "f16f16f32", None, {"n": 2, "h": 9, "w": 11, "ci": 4, "co": 6, "kh": 3, "kw": 5, **STRIDED}),
    ("conv2d", "f16f16f32", "channels-first", {"n": 2, "h": 9, "w": 11, "ci": 4, "co": 6, "kh": 3, "kw": 5}),
    ("conv2d", "f16f16f32", None, {"n": 1, "h": 9, "w": 9, "ci": 8, "co": 6, "kh": 3, "kw": 3, "groups": 2}),
    ("conv2d_dilated", "f16f16f32", None, {"n": 1, "h": 9, "w": 9, "ci": 4, "co": 6, "kh": 3, "kw": 3, "dilation": 2}),
    ("depthwise_conv2d", "f16f16f32", None, {"n": 1, "h": 9, "w": 8, "c": 6, "kh": 3, "kw": 3, **STRIDED}),
    ("depthwise_conv2d", "f16f16f32", "channels-first", {"n": 1, "h": 9, "w": 8, "c": 6, "kh": 3, "kw": 3}),
    ("conv2d_transposed", "f16f16f32", None, {"n": 1, "h": 5, "w": 6, "ci": 4, "co": 6, "kh": 4, "kw": 3, **STRIDED}),
    ("conv2d_transposed", "f16f16f32", "channels-first", {"n": 1, "h": 5, "w": 6, "ci": 4, "co": 6, "kh": 4, "kw": 3}),
    ("conv3d", "f16f16f32", None, {"n": 1, "d": 4, "h": 5, "w": 6, "ci": 4, "co": 6, "kd": 2, "kh": 3, "kw": 3}),
]


def peer_of(made: Operator, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    torch = pytest.importorskip("torch", reason="pip install torch")
    storage = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "s8": "int8", "s32": "int32"}
    buffers = tuple(
        Buffer(one.name, storage[one.dtype.name], one.shape, Use.OUTPUT if one is made.result else Use.INPUT)
        for one in made.tensors
    )
    write_jobs(folder / "case", Problem(made.label, "sm_80", buffers, [data_of(made, made.result.name)]), [])
    monkeypatch.syspath_prepend(str(pack(folder / "worker.pyz")))
    said = {"case": "case", "operator": made.name, "shape": dict(made.shape), "layout": made.layout, "epilogue": ""}
    said["epilogue"] = made.epilogue_text
    return measure(torch, "cpu", said, folder, lambda call: ({}, {"called": call() is not None}))


@pytest.mark.parametrize(("kind", "dtype", "layout", "shape"), CALLS, ids=lambda value: value if value else "-")
def test_the_peer_computes_the_same(
    kind: str, dtype: str, layout: str | None, shape: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = peer_of(operator(kind, shape, dtype, layout), tmp_path, monkeypatch)
    assert found["wrong"] == ""
    assert found["warm"] == {"called": True}


def test_what_has_no_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = {"n": 1, "h": 9, "w": 9, "ci": 4, "co": 6, "kh": 3, "kw": 3}
    for number, (made, said) in enumerate((
        (operator("conv2d", {**shape, "padding_left": 1}, "f16f16f32"), "padding differs"),
        (operator("conv2d", shape, "s8s8s32"), "no conv2d of int8"),
        (operator("gemm", {"m": 8, "n": 8, "k": 8}, "f16f16f32", None, "relu"), "epilogues"),
    )):  # fmt: skip
        with pytest.raises(NoPeerError, match=said):
            peer_of(made, tmp_path / str(number), monkeypatch)
