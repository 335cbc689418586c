"""The C functions that follow from an operator family's metadata."""

from __future__ import annotations

import pytest

from heron_asp.dtypes import DTYPES
from heron_asp.library.interface import C_TYPES, Interface, Prototype, public_functions
from heron_asp.operators import KINDS, Layout, OperatorKind


def texts(kind: OperatorKind, dtype: str, prefix: str = "") -> list[str]:
    functions = public_functions("lib", [Interface(kind, dtype, prefix)])
    return [" ".join(function.text.split()) for function in functions]


def test_gemm() -> None:
    assert texts(KINDS["gemm"], "u8s8s32")[3:] == [
        "int gemm_u8s8s32(int m, int n, int k, const uint8_t *a, int lda, const void *packed_b, int32_t *c, int ldc)",
        "size_t gemm_u8s8s32_packed_b_bytes(int n, int k)",
        "int gemm_u8s8s32_pack_b(int n, int k, const int8_t *b, int ldb, void *packed_b)",
    ]


def test_gemv_has_no_leading_dimension() -> None:
    assert texts(KINDS["gemv"], "bf16bf16f32")[3:] == [
        "int gemv_bf16bf16f32(int m, int k, const void *packed_a, const uint16_t *x, float *y)",
        "size_t gemv_bf16bf16f32_packed_a_bytes(int m, int k)",
        "int gemv_bf16bf16f32_pack_a(int m, int k, const uint16_t *a, int lda, void *packed_a)",
    ]


def test_batch_matmul_packs_nothing() -> None:
    assert texts(KINDS["batch_matmul"], "u8s8s32")[3:] == [
        "int batch_matmul_u8s8s32(int batch, int m, int n, int k, const uint8_t *a, int lda, const int8_t *b, int ldb, "
        "int32_t *c, int ldc)"
    ]


def test_general_functions_carry_the_librarys_name() -> None:
    assert texts(KINDS["gemv"], "u8s8s32")[:3] == [
        "const char *lib_error(int status)",
        "int lib_set_threads(int threads)",
        "int lib_threads(void)",
    ]


def test_a_prefix_begins_the_operators_functions() -> None:
    assert all(" my_gemm_u8s8s32" in text for text in texts(KINDS["gemm"], "u8s8s32", "my_")[3:])


def test_an_operator_of_the_readers_own() -> None:
    """Nothing is known of any operator: a vector that is known ahead, and a result of four extents."""
    kind = OperatorKind(
        name="outer",
        keys=("p", "q", "r", "s"),
        layouts={"row-major": Layout({"w": ("s",), "x": ("p", "q", "r"), "z": ("p", "q", "r", "s")})},
        slots=(1, 0, 2),
        constant=frozenset({"w"}),
        build=lambda *_: None,
        reference=lambda _extents, arrays, _layout: arrays[0],
        terms=lambda _: 1,
        operations=lambda _: 1,
        summary="",
    )
    assert texts(kind, "s16s8s32")[3:] == [
        "int outer_s16s8s32(int p, int q, int r, int s, const void *packed_w, const int16_t *x, int ldx, int32_t *z, "
        "int ldz)",
        "size_t outer_s16s8s32_packed_w_bytes(int s)",
        "int outer_s16s8s32_pack_w(int s, const int8_t *w, void *packed_w)",
    ]
    result = Interface(kind, "s16s8s32").result
    assert result.rows == "(int64_t)p * q * r"
    assert result.summary == "z: p x q x r x s elements of s32, rows ldz apart, matrices q * r * ldz apart; written"


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_has_a_c_type(dtype: str) -> None:
    assert C_TYPES[dtype]


def test_long_prototypes_are_broken_at_parameters() -> None:
    text = Prototype("name", tuple(f"int parameter_{number}" for number in range(12))).text
    assert max(map(len, text.splitlines())) <= 110
    assert text.splitlines()[1].startswith("         int parameter_")
