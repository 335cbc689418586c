"""What an export writes: the files, what the library shows and needs, the examples, the manifest."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heron_asp.errors import ExitCode, HeronError, MissingError
from heron_asp.library import CCompiler, export, export_tuned
from heron_asp.store import RunDirectory, write_whole
from heron_asp.target import Target
from heron_asp.tuning import TuneOptions, header
from tests.library.conftest import Exported, sampled


def output(*command: object, folder: Path | None = None) -> str:
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def needs(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"there is no {program}")
    return found


def test_five_files_are_written(exported: Exported) -> None:
    assert sorted(path.name for path in exported.folder.iterdir()) == [
        "example.c",
        "example.py",
        "libprobe.so",
        "manifest.json",
        "probe.h",
    ]


def test_only_public_functions_are_visible(exported: Exported) -> None:
    listed = output(needs("nm"), "-D", "--defined-only", exported.file)
    visible = {line.split()[-1] for line in listed.splitlines()}
    declared = {re.search(r"(\w+)\(", text)[1] for text in exported.manifest.functions}  # type: ignore[index]
    assert visible == declared
    assert {"gemm_u8s8s32", "gemm_u8s8s32_pack_b", "gemv_u8s8s32_packed_a_bytes", "probe_error"} <= visible


def test_only_the_c_library_is_needed(exported: Exported) -> None:
    needed = {line.split()[0] for line in output(needs("ldd"), exported.file).splitlines()}
    names = {Path(name).name.split(".")[0] for name in needed}
    assert names <= {"linux-vdso", "libc", "libpthread", "libm", "ld-linux-x86-64", "ld-linux-aarch64"}


def test_the_stack_is_not_executable(exported: Exported) -> None:
    listed = output(needs("readelf"), "-lW", exported.file)
    assert re.search(r"GNU_STACK.*RW ", listed)


def functions(exported: Exported) -> list[str]:
    """The functions that compute."""
    return sorted({kernel.function for kernel in exported.manifest.kernels})


@pytest.fixture
def copied(exported: Exported, tmp_path: Path) -> Path:
    """The exported folder, elsewhere."""
    return Path(shutil.copytree(exported.folder, tmp_path / "elsewhere"))


def test_the_c_example_runs_from_the_folder_alone(exported: Exported, copied: Path, compiler: CCompiler) -> None:
    command = [*compiler.command, "-Wall", "-Wextra", "-Werror", "example.c", "-L.", "-lprobe", "-Wl,-rpath,$ORIGIN"]
    output(*command, "-o", "example", folder=copied)
    lines = output(copied / "example", folder=Path("/")).splitlines()
    assert lines == [f"{function}: equals the reference" for function in functions(exported)]


def test_the_python_example_runs_from_the_folder_alone(exported: Exported, copied: Path) -> None:
    lines = output(sys.executable, copied / "example.py", folder=Path("/")).splitlines()
    assert lines == [f"{function}: equals the reference" for function in functions(exported)]


@pytest.mark.parametrize("language", ["c", "py"])
@pytest.mark.parametrize("what", ["a sample", "the sum", "an operand"])
def test_an_example_fails_where_a_result_is_wrong(copied: Path, compiler: CCompiler, language: str, what: str) -> None:
    example = copied / f"example.{language}"
    pattern, replacement = {
        "a sample": (r"([({]\d+), (-?\d+)(, 0[)}])", r"\1, 1\2\3"),
        "the sum": (r"near\((total|values.sum\(\)), ", r"near(\1, 1 + "),
        "an operand": (r"\b(x|a)(\[.*\] = )small", r"\1\2 1 + small"),
    }[what]
    text, changed = re.subn(pattern, replacement, example.read_text(), count=1)
    assert changed
    example.write_text(text)
    command = [sys.executable, str(example)]
    if language == "c":
        output(*compiler.command, "example.c", "-L.", "-lprobe", "-Wl,-rpath,$ORIGIN", "-o", "example", folder=copied)
        command = [str(copied / "example")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.count("WRONG") == 1


def test_the_header_is_c_and_cpp(copied: Path, compiler: CCompiler) -> None:
    flags = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    output(*compiler.command, *flags, "-std=c99", "-x", "c", "probe.h", folder=copied)
    output(needs("c++"), *flags, "-x", "c++", "probe.h", folder=copied)


def test_libraries_in_one_program_share_structs(copied: Path, runnable: Target, compiler: CCompiler) -> None:
    pointwise = sampled(runnable, "conv2d", n=1, h=4, w=4, ci=4, co=16, kh=1, kw=1)
    export_tuned([pointwise], copied, "second", "second_")
    export_tuned([pointwise], copied, "third")
    headers = "".join(f'#include "{name}.h"\n' for name in ("probe", "second", "third"))
    (copied / "all.c").write_text(f"{headers}struct conv2d_shape a; struct second_conv2d_shape b;\n")
    command = [*compiler.command, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "all.c"]
    output(*command, folder=copied)
    older = re.sub(r"(HERON_conv2d_shape (!= )?)0x\w+", r"\1 0x0", (copied / "third.h").read_text())
    (copied / "third.h").write_text(older)
    done = subprocess.run(command, cwd=copied, capture_output=True, text=True, check=False)
    assert "another version of heron_asp has made conv2d_shape" in done.stderr


def test_the_manifest_says_what_a_struct_holds(exported: Exported) -> None:
    manifest = exported.manifest
    assert manifest.structs["conv1d_shape"] == (
        *("n", "w", "ci", "co", "kw", "stride", "dilation", "padding_left", "padding_right", "groups"),
    )
    kernel = next(one for one in manifest.kernels if one.function == "conv1d_u8s8s32")
    assert kernel.shape == {"n": 1, "w": 30, "ci": 8, "co": 24, "kw": 3, "dilation": 2}
    assert kernel.extents == {"ow": 26, "ci_group": 8}
    assert kernel.layout == "channels-last"
    assert kernel.distant is None


def test_the_header_explains_the_steps_of_epilogues(exported: Exported) -> None:
    header = (exported.folder / "probe.h").read_text()
    assert " * Each sum is finished by bias, requantize=s8.\n" in header
    assert " *         requantize: round(. * scale) + zero_point, saturated" in header
    assert "relu:" not in header
    assert {kernel.epilogue for kernel in exported.manifest.kernels} > {"", "bias,requantize=s8"}


def test_the_header_says_kernels_as_c_initialises_shapes(exported: Exported) -> None:
    header = " ".join((exported.folder / "probe.h").read_text().replace("\n *", "").split())
    assert "{.n = 1, .w = 30, .ci = 8, .co = 24, .kw = 3, .dilation = 2} on 1 thread: 30 GOP/s; ow = 26" in header
    assert "m = 17, n = 33, k = 9 on 1 thread: 10.1 GOP/s" in header


def test_the_manifest_says_what_the_library_is(exported: Exported) -> None:
    said = json.loads((exported.folder / "manifest.json").read_text())
    assert said == json.loads(json.dumps(exported.manifest.to_json()))
    kernel = next(one for one in said["kernels"] if one["symbol"] == "gemm_u8s8s32_m17_n33_k9_t1")
    assert kernel["shape"] == {"m": 17, "n": 33, "k": 9}
    assert kernel["threads"] == 1
    assert kernel["intrinsics"] == ["vpdpbusd"]
    assert kernel["seconds"] == 1e-6
    assert kernel["gops"] == pytest.approx(2 * 17 * 33 * 9 / 1e3)
    assert kernel["share_of_peak"] == 0.5
    assert kernel["packed"][0]["tensor"] == "b"
    assert kernel["packed"][0]["bytes"] >= 33 * 9
    assert kernel["values"]
    assert set(said["units"]) >= {"seconds", "gops", "share_of_peak"}
    assert set(said["made_with"]) == {"heron-asp", "apache-tvm", "clingo", "compiler"}


def recorded(target: Target, folder: Path, seconds: float, **program: object) -> Path:
    """A run directory as `tune` leaves it."""
    tuned = sampled(target, **program)  # type: ignore[arg-type]
    run = RunDirectory(folder)
    run.open(header(tuned.task, TuneOptions(trials=1)), resume=False)
    best = {
        "seconds": seconds,
        "sketch": tuned.candidate.sketch,
        "values": tuned.candidate.to_json(),
        "share_of_peak": 0.25,
    }
    write_whole(run.result_file, {"best": best})
    run.close()
    return folder


def test_of_two_runs_of_a_task_the_faster_is_exported(runnable: Target, compiler: CCompiler, tmp_path: Path) -> None:
    slow = recorded(runnable, tmp_path / "slow", 2e-6, name="gemm", m=16, n=16, k=16)
    fast = recorded(runnable, tmp_path / "fast", 1e-6, name="gemm", m=16, n=16, k=16)
    manifest = export([slow, fast], tmp_path / "out")
    assert [(kernel.run, kernel.seconds, kernel.share_of_peak) for kernel in manifest.kernels] == [
        (str(fast), 1e-6, 0.25)
    ]
    assert manifest.kernels[0].versions["apache-tvm"]
    assert manifest.summary() == [
        "libkernels.so for zen4: 1 kernel, checked against the reference",
        "  gemm_u8s8s32 m=16,n=16,k=16 on 1 thread: 1 us, 8.192 GOP/s, 25 % of the peak",
        f"  left out: {slow}: a faster program of the same task is in the library ({fast})",
    ]
    assert [(one.run, one.seconds, one.kept_run) for one in manifest.dropped] == [(str(slow), 2e-6, str(fast))]


def test_a_second_export_replaces_the_first(runnable: Target, compiler: CCompiler, tmp_path: Path) -> None:
    for m in (16, 32):
        manifest = export_tuned([sampled(runnable, "gemm", m=m, n=16, k=16)], tmp_path)
        assert json.loads((tmp_path / "manifest.json").read_text())["kernels"][0]["shape"]["m"] == m
    assert len(list(tmp_path.iterdir())) == 5
    assert manifest.kernels[0].shape["m"] == 32


def test_a_prefix_tells_libraries_apart(runnable: Target, compiler: CCompiler, tmp_path: Path) -> None:
    manifest = export_tuned([sampled(runnable, "gemm", m=16, n=16, k=16)], tmp_path, "mine", prefix="my_")
    assert any(text.startswith("int my_gemm_u8s8s32(") for text in manifest.functions)
    command = [*compiler.command, "example.c", "-L.", "-lmine", "-Wl,-rpath,$ORIGIN", "-o", "example"]
    output(*command, folder=tmp_path)
    assert output(tmp_path / "example").startswith("my_gemm_u8s8s32: equals")


@pytest.mark.parametrize("name", ["runtime", "status", "example", "int"])
def test_any_identifier_is_a_name(runnable: Target, compiler: CCompiler, tmp_path: Path, name: str) -> None:
    manifest = export_tuned([sampled(runnable, "gemv", m=16, k=16)], tmp_path, name)
    assert (tmp_path / manifest.header).read_text().count(f"int {name}_threads(void);") == 1


@pytest.mark.parametrize("name", ["My", "a-b", "1st", ""])
def test_a_name_must_be_an_identifier(name: str, tmp_path: Path) -> None:
    with pytest.raises(HeronError, match="not a lower-case C identifier"):
        export_tuned([], tmp_path, name)


def test_nothing_is_written_without_a_compiler(
    runnable: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="no C compiler") as caught:
        export_tuned([sampled(runnable, "gemm", m=16, n=16, k=16)], tmp_path / "out")
    assert caught.value.code is ExitCode.MISSING
    assert "apt install gcc" in caught.value.hint
    assert not (tmp_path / "out").exists()
