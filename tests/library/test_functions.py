"""Plain C functions from scheduled programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from heron_asp.errors import InternalError
from heron_asp.library import functions
from heron_asp.library.functions import c_function, compile_object, with_leading
from heron_asp.target import Target
from tests.library.conftest import sampled


def test_leading_dimensions_follow_the_pointers(zen4: Target) -> None:
    tuned = sampled(zen4, "batch_matmul", batch=2, m=8, n=16, k=8)
    main = tuned.task.program(tuned.candidate).module["main"]
    made = c_function(main, "kernel", [True, True, True])
    assert [parameter.name for parameter in made.params] == ["a", "b", "c", "lda", "ldb", "ldc"]
    assert str(made.attrs["global_symbol"]) == "kernel"


def test_matrices_of_a_batch_follow_each_other_row_by_row(zen4: Target) -> None:
    tuned = sampled(zen4, "batch_matmul", batch=2, m=8, n=16, k=8)
    made = with_leading(tuned.task.program(tuned.candidate).module["main"], [True, False, True])
    assert [str(stride) for stride in made.params[0].ty.strides] == ["lda * 8", "lda", "1"]
    assert list(made.params[1].ty.strides) == []


def test_an_object_that_needs_more_of_tvm_is_refused(
    zen4: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = sampled(zen4, "gemm", threads=2, pins="fused(c, task)=2", m=64, n=64, k=64)
    main = tuned.task.program(tuned.candidate).module["main"]
    made = {"kernel": c_function(main, "kernel", [False] * 3)}
    compile_object(made, zen4, tmp_path / "kernel.o")
    monkeypatch.setattr(functions, "_RUNTIME", set())
    with pytest.raises(InternalError, match="__TVMBackendParallelLaunch"):
        compile_object(made, zen4, tmp_path / "kernel.o")
