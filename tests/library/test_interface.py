"""The C functions that follow from an operator family's metadata."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heron_asp.dtypes import DTYPES
from heron_asp.library.interface import Interface, public_functions
from heron_asp.library.prototype import C_TYPES, Prototype
from heron_asp.library.words import RESERVED, distinct, identifier
from heron_asp.operators import KINDS, Layout, Operator, OperatorKind, operator
from heron_asp.operators.kind import Names

GENERAL = 3  # functions that every library has


def texts(interface: Interface) -> list[str]:
    functions = public_functions("lib", [interface])
    return [" ".join(function.text.split()) for function in functions]


def test_gemm() -> None:
    assert texts(Interface(KINDS["gemm"], "u8s8s32"))[GENERAL:] == [
        "int gemm_u8s8s32(int m, int n, int k, const uint8_t *a, int lda, const void *packed_b, int32_t *c, int ldc)",
        "size_t gemm_u8s8s32_packed_b_bytes(int n, int k)",
        "int gemm_u8s8s32_pack_b(int n, int k, const int8_t *b, int ldb, void *packed_b)",
    ]


def test_gemv_has_no_leading_dimension() -> None:
    assert texts(Interface(KINDS["gemv"], "bf16bf16f32"))[GENERAL:] == [
        "int gemv_bf16bf16f32(int m, int k, const void *packed_a, const uint16_t *x, float *y)",
        "size_t gemv_bf16bf16f32_packed_a_bytes(int m, int k)",
        "int gemv_bf16bf16f32_pack_a(int m, int k, const uint16_t *a, int lda, void *packed_a)",
    ]


def test_batch_matmul_packs_nothing() -> None:
    assert texts(Interface(KINDS["batch_matmul"], "u8s8s32"))[GENERAL:] == [
        "int batch_matmul_u8s8s32(int batch, int m, int n, int k, const uint8_t *a, int lda, const int8_t *b, int ldb, "
        "int32_t *c, int ldc)"
    ]


def test_a_shape_with_optional_numbers_is_a_struct() -> None:
    interface = Interface(KINDS["conv2d"], "u8s8s32")
    assert texts(interface)[GENERAL:] == [
        "int conv2d_u8s8s32(const struct conv2d_shape *shape, const uint8_t *x, const void *packed_weight, int32_t *y)",
        "size_t conv2d_u8s8s32_packed_weight_bytes(const struct conv2d_shape *shape)",
        "int conv2d_u8s8s32_pack_weight(const struct conv2d_shape *shape, const int8_t *weight, void *packed_weight)",
    ]
    assert interface.members.splitlines() == [
        "    int n, h, w, ci, co, kh, kw;",
        "    int stride_h; /* 0 stands for 1 */",
        "    int dilation_h; /* 0 stands for 1 */",
        "    int stride_w; /* 0 stands for 1 */",
        "    int dilation_w; /* 0 stands for 1 */",
        "    int padding_top; /* 0 or more */",
        "    int padding_bottom; /* 0 or more */",
        "    int padding_left; /* 0 or more */",
        "    int padding_right; /* 0 or more */",
        "    int groups; /* 0 stands for 1 */",
    ]


def test_another_layout_is_another_function_over_the_same_struct() -> None:
    first = Interface.of(operator("conv1d", {"n": 1, "w": 9, "ci": 4, "co": 8, "kw": 3}, layout="channels-first"))
    assert texts(first)[GENERAL].startswith("int conv1d_channels_first_u8s8s32(const struct conv1d_shape *shape, ")
    assert first.arguments[0].summary == "x: n x ci x w elements of u8"
    assert first.packed[0].argument.extents == ("co", "ci_group", "kw")


def test_what_has_fixed_contents_is_no_argument() -> None:
    scan = Interface.of(operator("scan", {"m": 8, "n": 16, "k": 16}))
    assert texts(scan)[GENERAL:] == ["int scan_u8s8s32(int m, int n, int k, const uint8_t *x, int32_t *y)"]
    assert [argument.name for argument in scan.inside] == ["l"]
    assert scan.kernel == ("const uint8_t *x", "const void *packed_l", "int32_t *y")


def test_an_epilogue_is_part_of_the_name_and_its_tensors_are_arguments() -> None:
    interface = Interface.of(
        operator("conv1d", {"n": 1, "w": 9, "ci": 4, "co": 8, "kw": 3}, epilogue="bias,add,requantize=u8:per-channel")
    )
    assert texts(interface)[GENERAL] == (
        "int conv1d_bias_add_requantize_u8_per_channel_u8s8s32(const struct conv1d_shape *shape, const uint8_t *x, "
        "const void *packed_weight, const int32_t *bias, const int32_t *residual, const float *scale, "
        "uint8_t zero_point, uint8_t *y)"
    )
    summaries = [argument.summary for argument in interface.arguments[2:]]
    assert summaries == [
        "bias: co elements of s32",
        "residual: n x ow x co elements of s32",
        "scale: co elements of f32",
        "zero_point: one number of u8",
        "y: n x ow x co elements of u8; written",
    ]


@pytest.mark.parametrize(
    "made",
    [
        operator(name, dict.fromkeys(KINDS[name].keys, 6), layout=layout, epilogue="bias,add,requantize=s8")
        for name in ("gemm", "gemv", "conv2d", "depthwise_conv2d", "conv2d_transposed")
        for layout in KINDS[name].layouts
    ],
    ids=lambda made: made.label,
)
def test_arguments_are_the_tensors_of_the_operator(made: Operator) -> None:
    for argument, spec in zip(Interface.of(made).arguments, made.tensors, strict=True):
        assert (argument.name, argument.dtype) == (spec.name, spec.dtype)
        assert tuple(made.extents[extent] for extent in argument.extents) == (() if argument.by_value else spec.shape)


def test_with_an_epilogue_tensors_are_compact() -> None:
    interface = Interface.of(operator("gemm", {"m": 8, "n": 16, "k": 4}, epilogue="clip=-5:1"))
    assert texts(interface)[GENERAL:] == [
        "int gemm_clip_m5_1_u8s8s32(int m, int n, int k, const uint8_t *a, const void *packed_b, int32_t *c)",
        "size_t gemm_clip_m5_1_u8s8s32_packed_b_bytes(int n, int k)",
        "int gemm_clip_m5_1_u8s8s32_pack_b(int n, int k, const int8_t *b, void *packed_b)",
    ]


def test_general_functions_carry_the_librarys_name() -> None:
    assert texts(Interface(KINDS["gemv"], "u8s8s32"))[:GENERAL] == [
        "const char *lib_error(int status)",
        "int lib_set_threads(int threads)",
        "int lib_threads(void)",
    ]


def test_a_prefix_begins_the_operators_functions_and_structs() -> None:
    assert all(" my_gemm_u8s8s32" in text for text in texts(Interface(KINDS["gemm"], "u8s8s32", "", "my_"))[GENERAL:])
    assert Interface(KINDS["conv2d"], "u8s8s32", "", "my_").struct == "my_conv2d_shape"


# -- operators of the reader's own: nothing is known of any ------------------------------------------------------------

OUTER = OperatorKind(
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
    strided=True,
)


def test_a_vector_that_is_known_ahead_and_a_result_of_four_extents() -> None:
    interface = Interface(OUTER, "s16s8s32")
    assert texts(interface)[GENERAL:] == [
        "int outer_s16s8s32(int p, int q, int r, int s, const void *packed_w, const int16_t *x, int ldx, int32_t *z, "
        "int ldz)",
        "size_t outer_s16s8s32_packed_w_bytes(int s)",
        "int outer_s16s8s32_pack_w(int s, const int8_t *w, void *packed_w)",
    ]
    assert interface.result.summary == (
        "z: p x q x r x s elements of s32, rows ldz apart, matrices q * r * ldz apart; written"
    )


def test_compact_tensors_have_no_leading_dimension() -> None:
    interface = Interface(replace(OUTER, strided=False), "s16s8s32")
    assert texts(interface)[GENERAL] == (
        "int outer_s16s8s32(int p, int q, int r, int s, const void *packed_w, const int16_t *x, int32_t *z)"
    )
    assert not interface.strided


def test_without_keys_there_is_a_plain_function() -> None:
    tensors: dict[str, Names] = {"w": ("three",), "x": ("two",), "z": ()}
    interface = Interface(replace(OUTER, keys=(), layouts={"": Layout(tensors)}, strided=False), "u8s8s32")
    assert texts(interface)[GENERAL:] == [
        "int outer_u8s8s32(const void *packed_w, const uint8_t *x, int32_t *z)",
        "size_t outer_u8s8s32_packed_w_bytes(void)",
        "int outer_u8s8s32_pack_w(const int8_t *w, void *packed_w)",
    ]
    assert interface.result.summary == "z: one number of s32; written"


def test_more_than_four_numbers_are_a_struct() -> None:
    five = Interface(replace(OUTER, keys=("p", "q", "r", "s", "t")), "u8s8s32")
    assert texts(five)[GENERAL + 1] == "size_t outer_u8s8s32_packed_w_bytes(const struct outer_shape *shape)"
    assert five.members == "    int p, q, r, s, t;"


def test_names_are_no_words_of_c_and_all_different() -> None:
    tensors: dict[str, Names] = {"double": ("for",), "packed_double": ("for",), "for": ("for",)}
    interface = Interface(replace(OUTER, name="3 d", keys=("for",), constant=frozenset({"double"})), "u8s8s32")
    interface = replace(interface, kind=replace(interface.kind, layouts={"": Layout(tensors)}), prefix="my_")
    assert texts(interface)[GENERAL] == (
        "int my_v3_d_u8s8s32(int for_, const void *packed_double_, const uint8_t *packed_double, int32_t *for__)"
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [("clip=-1:6", "clip_m1_6"), ("clip=1:6", "clip_1_6"), ("clip=0.5:1e-07", "clip_0p5_1em07"), ("a-b", "a_b")],
)
def test_numbers_in_names_stay_apart(text: str, word: str) -> None:
    assert identifier(text) == word


@pytest.mark.parametrize("name", ["int", "lambda", "x y", "3", "_t", "ß", "NULL", "namespace"])
def test_any_name_becomes_an_identifier(name: str) -> None:
    (word,) = distinct([name]).values()
    assert word.isidentifier()
    assert word.isascii()
    assert word not in RESERVED


def test_equal_identifiers_are_told_apart() -> None:
    assert distinct(["a b", "a-b", "a_b_"], ["a_b"]) == {"a b": "a_b_", "a-b": "a_b__", "a_b_": "a_b___"}


# -- numbers that may be left out --------------------------------------------------------------------------------------


def with_defaults(**defaults: int | str) -> Interface:
    return Interface(replace(OUTER, keys=("p",), defaults=defaults, least={"low": 0}), "u8s8s32")


def test_a_key_that_only_gives_others_their_default_is_no_field() -> None:
    interface = with_defaults(both=2, high="both", wide="both")
    assert [field.key for field in interface.fields] == ["p", "high", "wide"]
    assert interface.values(interface.fields) == ["shape->p", "heron_or(shape->high, 2)", "heron_or(shape->wide, 2)"]


def test_a_field_may_be_the_default_of_another() -> None:
    interface = with_defaults(q="p")
    assert interface.values(interface.fields) == ["shape->p", "heron_or(shape->q, shape->p)"]
    assert interface.fields[1].comment == "0 stands for p"
    given = [{field.key: value for field, value in interface.given({"p": 5, "q": q})} for q in (5, 6)]
    assert given == [{"p": 5}, {"p": 5, "q": 6}]


def test_where_0_is_a_number_of_its_own_it_stands_for_itself() -> None:
    interface = with_defaults(low=3)
    assert interface.values(interface.fields) == ["shape->p", "shape->low"]
    given = [{field.key: value for field, value in interface.given({"p": 1, "low": low})} for low in (0, 3)]
    assert given == [{"p": 1}, {"p": 1, "low": 3}]


@pytest.mark.parametrize("said", [{}, {"stride": 2}, {"stride_h": 3, "padding": 1}, {"groups": 2, "dilation_w": 2}])
def test_what_is_given_says_the_whole_shape(said: dict[str, int]) -> None:
    shape = operator("conv2d", {"n": 1, "h": 9, "w": 8, "ci": 4, "co": 6, "kh": 3, "kw": 2, **said}).shape
    interface = Interface(KINDS["conv2d"], "u8s8s32")
    given = {field.key: value for field, value in interface.given(shape)}
    assert {field.key: field.complete(given) for field in interface.fields} == {
        field.key: shape[field.key] for field in interface.fields
    }


SMALLEST = {"n": 2, "d": 6, "h": 7, "w": 8, "ci": 6, "co": 9, "c": 5, "kd": 2, "kh": 3, "kw": 2, "m": 4, "k": 5}


@pytest.mark.parametrize("name", KINDS)
def test_shorthands_matter_to_nothing_but_defaults(name: str) -> None:
    """Fields say the whole shape: what is no field changes nothing where the fields are given."""
    kind = KINDS[name]
    interface = Interface(kind, kind.dtype)
    fields = {field.key: 2 if field.least else 1 for field in interface.fields if field.key not in kind.keys}
    fields |= {key: SMALLEST.get(key, 3) for key in kind.keys} | ({"groups": 3} if "groups" in fields else {})
    first = operator(name, fields)
    for key in set(kind.every_key) - set(fields):
        other = operator(name, {**fields, key: 3})
        assert other.tensors == first.tensors
        assert str(other.prim_func()) == str(first.prim_func()), key


# -- what packing depends on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.constant and name != "gemv"])
def test_packing_does_not_look_at_the_size_of_the_operands_that_a_constant_meets(name: str) -> None:
    kind = KINDS[name]
    (packed,) = Interface(kind, kind.dtype).packed
    assert set(packed.fields) < set(Interface(kind, kind.dtype).fields)
    decisive = {field.key for field in packed.fields}
    shape = {key: SMALLEST.get(key, 3) for key in kind.keys}
    tensor = next(spec for spec in operator(name, shape).tensors if spec.name == packed.argument.name)
    for key in set(kind.keys) - decisive:
        other = operator(name, {**shape, key: shape[key] + 1})
        assert tensor in other.tensors, key


@pytest.mark.parametrize(("changed", "shared"), [({"h": 9}, True), ({"n": 3}, True), ({"stride": 3}, False)])
def test_a_transposed_convolution_prepares_its_weights_by_stride(changed: dict[str, int], shared: bool) -> None:
    from heron_asp.analysis import analyse

    shape = {"n": 1, "h": 6, "w": 6, "ci": 4, "co": 8, "kh": 3, "kw": 3, "stride": 2}
    prepared = []
    for made in (operator("conv2d_transposed", {**shape, **changed}), operator("conv2d_transposed", shape)):
        weight = next(tensor for tensor in analyse(made).operands if tensor.name == "weight")
        prepared.append((weight.shape, str(weight.stage.value) if weight.stage else ""))
    assert (prepared[0] == prepared[1]) is shared


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_has_a_c_type(dtype: str) -> None:
    assert C_TYPES[dtype]


def test_long_prototypes_are_broken_at_parameters() -> None:
    text = Prototype("name", tuple(f"int parameter_{number}" for number in range(12))).text
    assert max(map(len, text.splitlines())) <= 110
    assert text.splitlines()[1].startswith("         int parameter_")
