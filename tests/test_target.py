"""Targets: what is accepted, and what an error says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from heron_asp.errors import HeronError, MissingError
from heron_asp.host import missing_flags, resolve_target
from heron_asp.intrinsics import tvm_vector, vector_bits
from heron_asp.operators import operator
from heron_asp.resources import rules_folder, targets_folder
from heron_asp.target import Target, load_target, target_names
from heron_asp.task import Task

ZEN4 = (targets_folder() / "zen4.toml").read_text()
FAMILY = (targets_folder() / "families" / "dlboost.toml").read_text()


def test_every_shipped_target_loads() -> None:
    assert {"zen4", "cascadelake", "icelake", "sapphirerapids"} <= set(target_names())
    for name in target_names():
        assert resolve_target(name).name == name


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("capacity = 32_768", "capasity = 32_768", "unknown key 'memories.0.capasity'", "did you mean 'capacity'?"),
        ("[limits]", "[limit]", "unknown key 'limit'", "did you mean 'limits'?"),
        ('mcpu = "znver4"', 'mpcu = "znver4"', "unknown key 'compiler.mpcu'", "did you mean 'mcpu'?"),
        ('mcpu = "znver4"', 'mcpu = "native"', "silently becomes a generic machine", ""),
        ("32_768", "-1", "memories.0.capacity: Input should be greater than 0", ""),
        ("32_768", "2_000_000", "'l2' (1048576 bytes) is listed after 'l1' (2000000 bytes) and must be larger", ""),
        ('family = "dlboost"', 'family = "dlbost"', "family = 'dlbost'", "did you mean 'dlboost'?"),
        ("[compiler]", "[compiler", "not TOML", ""),
        ("vector_registers = 32", "vector_registers = 99_999_999_999", "limits.vector_registers", ""),
        ("vector_registers = 32", 'vector_registers = "32"', "limits.vector_registers", ""),
        ("vector_registers", "vector_register", "'limits.vector_register'", "did you mean 'vector_registers'?"),
        ("vector_registers = 32", "", "key 'limits.vector_registers' is missing", "vector registers that a kernel"),
        ("vector_bytes = 64", "vector_bytes = 63", "limits.vector_bytes = 63 is not in 64..64", "512 bits"),
        ("[limits]", "[pays.l3]\nvalue = 1\n[limits]", "unknown key 'pays.l3'", "l2, lanes"),
        ("avx512_vnni", "avx512_vnnni", "'avx512_vnnni' is none", "did you mean 'avx512_vnni'?"),
    ],
)
def test_mistakes_in_a_target(tmp_path: Path, old: str, new: str, message: str, hint: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(ZEN4.replace(old, new, 1))
    with pytest.raises(HeronError) as caught:
        resolve_target(str(file))
    assert str(file) in caught.value.message
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sm_80", "sm_x", 'mcpu = "sm_.." are needed'),
        ("sm_80", "sm_9000", 'mcpu = "sm_.." are needed'),
        ("sm_80", "sm_61", "'sm_61' is too old for matrix instructions, which sm_70 brought"),
        ("sm_80", "sm_75", "'sm_75' is too old for features = 'bf16', which sm_80 brought"),
        ('"bf16"', '"bf_16"', "features: 'bf_16' is none that the family knows"),
        ("capacity = 166_912", "capacity = 167_937", "167937 bytes, more than limits.shared_total = 167936"),
        ("lanes = 32", "lanes = 16", "limits.lanes = 16 is not in 32..32"),
        ('name = "shared"', 'name = "sharde"', "there is no memory 'shared'"),
    ],
)
def test_mistakes_in_a_gpu(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    gpu = (targets_folder() / "a100.toml").read_text()
    assert old in gpu
    file.write_text(gpu.replace(old, new, 1))
    with pytest.raises(HeronError) as caught:
        resolve_target(str(file))
    assert message in caught.value.message
    assert str(file) in caught.value.message


def test_a_gpu_without_asynchronous_copies_has_no_pipeline_of_them(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    older = (targets_folder() / "a100.toml").read_text().replace("sm_80", "sm_75").replace(', "bf16"', "")
    file.write_text(older)
    with pytest.raises(HeronError, match=r"too old for limits.async_stages > 1, which sm_80 brought"):
        resolve_target(str(file))
    file.write_text(older.replace("async_stages = 4", "async_stages = 1"))
    assert resolve_target(str(file)).machine.limits["async_stages"] == 1


def test_what_is_wrong_inside_of_a_list_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text((targets_folder() / "a100.toml").read_text().replace("capacity = 166_912", "capacity = 0"))
    with pytest.raises(HeronError) as caught:
        resolve_target(str(file))
    assert caught.value.message == f"{file}: memories.0.capacity: Input should be greater than 0"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('index = ["n", "r"]', 'index = ["n", "q"]', "operand 1 is indexed by 'q'"),
        (
            'type = "s8x64" },\n  { load = 1',
            'type = "s8x32" },\n  { load = 1',
            "operand 0 x 16 has 512 bits, s8x32 has 256",
        ),
        ('dtype = "u8"', 'dtype = "u9"', "dtype 'u9' is none of"),
        ('returns = "s32x16"', 'returns = "s32x8"', "the result has 512 bits, the call returns s32x8 of 256"),
        ('function = "heron_vdpbf16ps"', 'function = "other"', "'ir' does not define the function 'other'"),
        ('llvm = "llvm.x86', 'ir = "x"\nllvm = "llvm.x86', "give either 'llvm'"),
    ],
)
def test_an_intrinsic_checks_its_own_numbers(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "families").mkdir()
    (tmp_path / "families" / "dlboost.toml").write_text(FAMILY.replace(old, new, 1))
    (tmp_path / "mine.toml").write_text(ZEN4)
    with pytest.raises(HeronError) as caught:
        load_target(tmp_path / "mine.toml")
    assert message in caught.value.message


def test_a_name_a_path_or_a_family(monkeypatch: pytest.MonkeyPatch, zen4: Target) -> None:
    with pytest.raises(HeronError, match="-t zen5"):
        resolve_target("zen5")
    monkeypatch.setattr("heron_asp.host.cpu_flags", lambda: frozenset({"avx2"}))
    with pytest.raises(MissingError, match="its CPU lacks avx512_vnni"):
        resolve_target("dlboost")
    assert "avx512_vnni" in missing_flags(zen4)
    monkeypatch.setattr("heron_asp.host.cpu_flags", lambda: frozenset(zen4.machine.cpu_flags))
    monkeypatch.setattr("heron_asp.host.llvm_cpu", lambda: "znver4")
    assert resolve_target("dlboost").name == "zen4"
    monkeypatch.setattr("heron_asp.host.llvm_cpu", lambda: "icelake-server")
    assert resolve_target("dlboost").name == "icelake"
    monkeypatch.setattr("heron_asp.host.llvm_cpu", lambda: "futurelake")
    assert set(resolve_target("dlboost").machine.cpu_flags) <= set(zen4.machine.cpu_flags)


def test_the_digest_follows_every_number(tmp_path: Path, zen4: Target) -> None:
    file = tmp_path / "zen4.toml"
    file.write_text(ZEN4)
    assert load_target(file).digest == zen4.digest
    file.write_text(ZEN4.replace("32_768", "32_769"))
    assert load_target(file).digest != zen4.digest


def test_machine_values() -> None:
    assert vector_bits("s32x16") == vector_bits("s8x64") == 512
    assert (tvm_vector("s32x16"), tvm_vector("u16x32"), tvm_vector("bf16x2")) == ("int32x16", "uint16x32", "uint16x2")
    with pytest.raises(ValueError, match="is not a machine value"):
        vector_bits("q7x3")


def test_a_machine_has_numbers_of_its_own_for_rules_of_thumb(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(ZEN4 + "\n[pays.registers]\nvalue = 3\n")
    mine, shared = resolve_target(str(file)).pays["registers"], resolve_target("zen4").pays["registers"]
    assert (mine.value, mine.meaning) == (3, shared.meaning)
    assert mine.evidence == "given by mine.toml without evidence"


def own_family(home: Path) -> Path:
    """Makes a family of the user's own without rules; returns its target file."""
    (home / "targets" / "families").mkdir(parents=True)
    (home / "targets" / "families" / "mine.toml").write_text(FAMILY.replace('family = "dlboost"', 'family = "mine"'))
    file = home / "targets" / "one.toml"
    file.write_text(ZEN4.replace('family = "dlboost"', 'family = "mine"'))
    return file


def test_rules_stand_beside_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zen4: Target) -> None:
    assert not zen4.brings_rules
    assert zen4.rules == (rules_folder() / "core", rules_folder() / "dlboost")
    file = own_family(tmp_path)
    with pytest.raises(HeronError, match=re.escape(f"no rule files (*.lp) in {tmp_path / 'rules' / 'mine'}")):
        Task(operator("gemm", {"m": 4, "n": 16, "k": 4}), load_target(file))
    shutil.copytree(rules_folder() / "dlboost", tmp_path / "rules" / "mine")
    monkeypatch.chdir(tmp_path / "targets")
    for said in (file, Path("one.toml"), Path("../targets/one.toml")):
        mine = load_target(said)
        assert mine.brings_rules
        assert mine.rules == (rules_folder() / "core", tmp_path / "rules" / "mine")
    monkeypatch.setenv("HERON_ASP_TARGETS", str(tmp_path / "targets"))
    monkeypatch.setenv("HERON_ASP_RULES", str(tmp_path / "rules"))
    assert resolve_target("one").rules == (tmp_path / "rules" / "core", tmp_path / "rules" / "mine")


def test_a_family_file_alone_changes_a_family_that_is_known(tmp_path: Path) -> None:
    (tmp_path / "targets" / "families").mkdir(parents=True)
    (tmp_path / "targets" / "families" / "dlboost.toml").write_text(FAMILY)
    file = tmp_path / "targets" / "one.toml"
    file.write_text(ZEN4)
    assert load_target(file).rules[1] == rules_folder() / "dlboost"


def test_rules_beside_a_target_run_no_code(tmp_path: Path) -> None:
    file = own_family(tmp_path)
    shutil.copytree(rules_folder() / "dlboost", tmp_path / "rules" / "mine")
    (tmp_path / "rules" / "mine" / "more.lp").write_text("#script (python)\nimport os\n#end.\n")
    gemm = operator("gemm", {"m": 4, "n": 16, "k": 4})
    with pytest.raises(HeronError, match=r"more\.lp:1: #script runs code"):
        Task(gemm, load_target(file))
    assert Task(gemm, load_target(file), trusted=True).target.brings_rules
