"""Finding a C compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from heron_asp.errors import ExitCode, InternalError, MissingError
from heron_asp.library import CCompiler, find_compiler


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def works(says: str) -> str:
    """The script of a compiler that does what it is asked."""
    return f'case "$*" in *--version) echo "{says}";; *) : > probe.so;; esac'


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH without any compiler."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_any_the_error_says_how_to_get_one(bare: Path) -> None:
    with pytest.raises(MissingError, match=r"there is no C compiler \(cc, gcc or clang\)") as caught:
        find_compiler()
    assert caught.value.code is ExitCode.MISSING
    assert "apt install gcc libc6-dev" in caught.value.hint


def test_cc_is_used_first_with_its_options(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare, "cc", "echo wrong; exit 1")
    program(bare, "mine", works("mine 1.0"))
    monkeypatch.setenv("CC", "mine -march=x86-64")
    found = find_compiler()
    assert found == CCompiler(("mine", "-march=x86-64"), "mine 1.0")
    assert str(found) == "mine -march=x86-64: mine 1.0"


def test_a_cc_that_does_not_exist_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "none")
    with pytest.raises(MissingError, match="CC=none: there is no such program"):
        find_compiler()


def test_one_that_does_not_work_is_passed_over(bare: Path) -> None:
    program(bare, "cc", "exit 1")
    program(bare, "gcc", works("gcc 99"))
    assert find_compiler().command == ("gcc",)


def test_if_none_works_the_error_says_why(bare: Path) -> None:
    program(bare, "gcc", 'echo "probe.c:1: fatal error: pthread.h: No such file" >&2; exit 1')
    with pytest.raises(MissingError, match=r"gcc cannot make a shared library: .*pthread.h: No such file"):
        find_compiler()


def test_what_it_refuses_later_is_our_fault(compiler: CCompiler, tmp_path: Path) -> None:
    (tmp_path / "wrong.c").write_text("int f(void) { return x; }\n")
    with pytest.raises(InternalError, match=r"wrong\.c.*failed"):
        compiler.run(["-c", "wrong.c"], tmp_path)
