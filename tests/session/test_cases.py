"""The file of cases: what it may say, where mistakes stand, which cases are one task."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heron_asp.errors import HeronError
from heron_asp.operators import operator, parse_shape
from heron_asp.session.cases import Case, members, read_cases
from heron_asp.target import Target
from heron_asp.task import Task

SUITE = Path(__file__).parents[2] / "benchmarks" / "heron_suite.toml"
GOOD = """
# two layers
[[cases]]
operator = "gemm"
shape = { m = 4, n = 16, k = 8 }
count = 2

[[cases]]
case = "second"
operator = "gemm"
dtype = "bf16bf16f32"
shape = { m = 4, n = 16, k = 8 }
weight = 0.5
"""


@pytest.fixture
def make(zen4: Target):
    def task(case: Case) -> Task:
        said = dict(case.options)
        name, shape = said.pop("operator"), parse_shape(said.pop("shape"))
        return Task(operator(name, shape, **said), zen4)

    return task


def read(tmp_path: Path, text: str, table: str = "cases") -> list[tuple[str, Case]]:
    file = tmp_path / "c.toml"
    file.write_text(text)
    return read_cases(file, table)


def test_cases_are_read(tmp_path: Path, make) -> None:
    found = members(read(tmp_path, GOOD), make)
    assert [(one.name, one.weight) for one in found] == [("gemm-u8s8s32-m=4,n=16,k=8", 2.0), ("second", 0.5)]
    assert [one.task.operator.dtype for one in found] == ["u8s8s32", "bf16bf16f32"]


def test_a_network_of_the_suite(make) -> None:
    found = members(read_cases(SUITE, "network_resnet50"), make)
    assert len(found) == 21
    assert found[2].task.operator.label.startswith("conv2d f16f16f16 n=16,h=56,w=56,ci=64,co=64,kh=3,kw=3")
    assert sum(one.weight for one in found) == sum(case.importance for _, case in read_cases(SUITE, "network_resnet50"))


def test_equal_tasks_are_one_and_their_weights_add_up(tmp_path: Path, make) -> None:
    table = '[[cases]]\noperator = "gemm"\nshape = { m = 4, n = 16, k = 8 }\n'
    text = f'{table}case = "a"\ncount = 3\n{table}case = "b"\nweight = 0.5\ndtype = "u8s8s32"\n{table}{table}'
    (found,) = members(read(tmp_path, text), make)
    assert (found.name, found.weight) == ("a", 5.5)
    assert found.cases == ("a", "b", *["gemm u8s8s32 m=4,n=16,k=8"] * 2)


def test_names_are_those_of_directories(tmp_path: Path, make) -> None:
    names = ["../up", "a b", "a/b", "session.jsonl", "..", ".hidden"]
    text = "".join(
        f'[[cases]]\ncase = "{name}"\noperator = "gemm"\nshape = {{ m = {m}, n = 16, k = 8 }}\n'
        for m, name in enumerate(names, start=1)
    )
    found = [one.name for one in members(read(tmp_path, text), make)]
    assert found == ["up", "a-b", "a-b-2", "session.jsonl-case", "case", "hidden"]


@pytest.mark.parametrize(
    ("old", "new", "said", "hint"),
    [
        ("count = 2", "cuont = 2", r"c.toml:6: cases\[0\]: unknown key 'cuont'", "did you mean 'count'"),
        ("weight = 0.5", "weight = 0", r"c.toml:13: cases\[1\]: weight: Input should be greater than 0", ""),
        ("weight = 0.5", "count = 2.5", r"c.toml:13: cases\[1\]: count: Input should be a valid integer", ""),
        ("weight = 0.5", "weight = nan", r"c.toml:13: cases\[1\]: weight: Input should be", ""),
        ("weight = 0.5", "weight = 1\ncount = 1", r"c.toml:14: cases\[1\]: both weight and count", "give one"),
        ('case = "second"\noperator = "gemm"', 'case = "second"', r"c.toml:8: cases\[1\]: key 'operator' is", ""),
        ("{ m = 4, n = 16, k = 8 }\ncount", "{ m = 4, n = 1.5, k = 8 }\ncount", r"c.toml:5: cases\[0\]: shape.n: ", ""),
        ("[[cases]]", "[[case]]", r"c.toml: no \[\[cases\]\]", "did you mean 'case'.*--list NAME"),
        ("[[cases]]", "[cases", r"c.toml: not TOML: .*line 3", ""),
    ],
)
def test_mistakes_name_line_and_key(tmp_path: Path, old: str, new: str, said: str, hint: str) -> None:
    text = GOOD.replace(old, new) if old == "[[cases]]" else GOOD.replace(old, new, 1)
    with pytest.raises(HeronError, match=said) as caught:
        read(tmp_path, text)
    assert re.search(hint, caught.value.hint)


def test_a_case_that_is_no_task_names_its_place(tmp_path: Path, make) -> None:
    for old, new, said in (
        ('"gemm"\ndtype', '"gem"\ndtype', r"c.toml:8: cases\[1\]: unknown operator 'gem'"),
        ("k = 8 }\ncount", "kk = 8 }\ncount", r"c.toml:3: cases\[0\]: gemm has no shape key 'kk'"),
        ('"bf16bf16f32"', '"bf16"', r"c.toml:8: cases\[1\]: .*not three element types"),
    ):
        with pytest.raises(HeronError, match=said):
            members(read(tmp_path, GOOD.replace(old, new)), make)


def test_arrays_that_are_written_otherwise_are_read_too(tmp_path: Path) -> None:
    text = 'more = [{ operator = "gemm", shape = { m = 1, n = 2, k = 3 } }]'
    ((place, case),) = read(tmp_path, text, "more")
    assert place.endswith("c.toml: more[0]")
    assert case.options == {"operator": "gemm", "shape": "m=1,n=2,k=3"}
    with pytest.raises(HeronError, match=r"c.toml: more\[0\]: unknown key 'operatr'"):
        read(tmp_path, text.replace("operator", "operatr"), "more")


def test_a_shape_may_be_a_table_of_its_own(tmp_path: Path) -> None:
    text = '[[cases]]\noperator = "gemm"\n[cases.shape]\nm = 1\nn = 2\nk = 0.5\n'
    with pytest.raises(HeronError, match=r"c.toml:3: cases\[0\]: shape.k"):
        read(tmp_path, text)
