"""What is read off the TIR: axes, affine accesses, what stands before and after the sum; and what is refused."""

from __future__ import annotations

import re

import pytest

from heron_asp.analysis import analyse_prim_func
from heron_asp.errors import HeronError
from tests.analysis.expressions import made, padded, parsed, prim_func, read, tensor, total


def accesses_of(block, name: str) -> set[tuple[int, str, int]]:
    return {(one.dim, one.axis, one.stride) for one in block.accesses if one.tensor == name}


def test_axes_follow_the_result_and_then_the_sum() -> None:
    x, w = tensor("x", 4, 9), tensor("w", 9, 6)
    block = read(x, w, total("y", (6, 4), {"k": 9}, lambda j, i, k: x[i, k] * w[k, j]))
    assert [(axis.name, axis.kind, axis.extent) for axis in block.axes] == [
        ("j", "spatial", 6), ("i", "spatial", 4), ("k", "reduce", 9),
    ]  # fmt: skip
    assert block.finish is None
    assert [operand.stage for operand in block.operands] == [None, None]


@pytest.mark.parametrize(
    ("index", "start", "terms"),
    [
        (lambda i, r: i + r, 0, {("i", 1), ("r", 1)}),
        (lambda i, r: i * 2 + r * 3, 0, {("i", 2), ("r", 3)}),
        (lambda i, r: i + r + 5, 5, {("i", 1), ("r", 1)}),
        (lambda i, r: (i + r) * 2, 0, {("i", 2), ("r", 2)}),
        (lambda _i, r: r, 0, {("r", 1)}),
        (lambda _i, _r: 7, 7, set()),
    ],
)
def test_an_index_is_a_start_and_strides(index, start, terms) -> None:
    x, w = tensor("x", 99), tensor("w", 4)
    block = read(x, w, total("y", (5,), {"r": 4}, lambda i, r: x[index(i, r)] * w[r]))
    assert block.operands[0].start(0) == start
    assert accesses_of(block, "x") == {(0, axis, stride) for axis, stride in terms}


def test_stages_before_the_sum_are_one_expression_of_arguments() -> None:
    x, w = tensor("x", 6), tensor("w", 3)
    twice = made("twice", (6,), lambda i: x[i] * 2)
    around = padded(twice, (1,), (8,), "around")
    block = read(x, w, total("y", (6,), {"r": 3}, lambda i, r: around[i + r] * w[r]))
    operand = block.operands[0]
    assert (operand.name, operand.shape) == ("x", (8,))  # made of x alone, so it has its name
    assert "twice" not in str(operand.stage.value)
    assert block.read_by_stages == {"x"}


def test_an_operand_made_of_two_arguments_has_a_name_of_its_own() -> None:
    x, z, w = tensor("x", 6), tensor("z", 6), tensor("w", 6)
    both = made("both", (6,), lambda i: x[i] + z[i])
    y = total("y", (1,), {"k": 6}, lambda _, k: both[k] * w[k])
    assert [operand.name for operand in read(x, z, w, y).operands] == ["both", "w"]
    assert read(x, z, w, y, constant=["x", "w"]).constant == {"w"}
    assert read(x, z, w, y, constant=["x", "z"]).constant == {"both"}  # all that it is made of is known ahead


def test_factors_of_the_same_tensor_have_two_names() -> None:
    x = tensor("x", 4, 5)
    block = read(x, total("y", (4, 4), {"k": 5}, lambda i, j, k: x[i, k] * x[j, k]))
    plain, again = block.operands
    assert (plain.name, plain.stage, again.name) == ("x", None, "x_again")
    assert accesses_of(block, "x_again") == {(0, "j", 1), (1, "k", 1)}
    assert block.read_by_stages == {"x"}
    around = padded(x, (0, 1), (4, 7), "around")
    block = read(x, total("y", (4, 5), {"r": 3}, lambda i, j, r: x[i, r] * around[i, j + r]))
    assert [operand.name for operand in block.operands] == ["x", "around"]


def test_what_follows_the_sum_is_one_expression() -> None:
    x, w, bias = tensor("x", 4, 9), tensor("w", 9, 6), tensor("bias", 6)
    summed = total("summed", (4, 6), {"k": 9}, lambda i, j, k: x[i, k] * w[k, j])
    shifted = made("shifted", (4, 6), lambda i, j: summed[i, j] + bias[j])
    block = read(x, w, bias, made("y", (4, 6), lambda i, j: shifted[i, j] * 3))
    assert (block.result.name, block.finish.parameter.name, block.finish.source) == ("summed", "y", "summed")
    assert "shifted" not in str(block.finish.stage.value)
    assert [parameter.name for parameter in block.parameters] == ["x", "w", "bias"]


@pytest.mark.parametrize(
    ("shape", "element", "in_place"),
    [
        ((4, 6), lambda y, i, j: y[i, j] + 1, True),
        ((4, 6), lambda y, i, j: y[i, j] * y[i, j], True),
        ((4, 6), lambda y, i, j: y[3 - i, j], False),
        ((6, 4), lambda y, i, j: y[j, i], False),
        ((3, 6), lambda y, i, j: y[i, j], True),  # the last row is left out
        ((3, 6), lambda y, i, j: y[i + 1, j], False),
    ],
)
def test_a_finish_is_in_place_or_rearranges(shape, element, in_place) -> None:
    x, w = tensor("x", 4, 9), tensor("w", 9, 6)
    summed = total("summed", (4, 6), {"k": 9}, lambda i, j, k: x[i, k] * w[k, j])
    block = read(x, w, made("y", shape, lambda i, j: element(summed, i, j)))
    assert block.finish.in_place == in_place
    names = {fact.name for fact in block.facts()}
    assert "staged" in names
    assert ("rearranged" in names) == (not in_place)


def test_a_summed_axis_that_no_operand_ends_cannot_be_padded() -> None:
    x, w = tensor("x", 12), tensor("w", 12)

    def endless(y) -> list[str]:
        return [fact.arguments[1] for fact in read(x, w, y).facts() if fact.name == "endless"]

    assert endless(total("y", (5,), {"r": 8}, lambda i, r: x[i + r] * w[i + r])) == ["r"]
    assert endless(total("y", (5,), {"r": 12}, lambda i, r: x[r] * w[r])) == []
    assert endless(total("y", (5,), {"r": 8}, lambda i, r: x[r] * w[r])) == ["r"]  # more of either follows
    assert endless(total("y", (5,), {"r": 11}, lambda i, r: x[r] * w[r + 1])) == ["r"]


def _summed(x, _w):
    return total("y", (4,), {"k": 4}, lambda i, k: x[i + k])


def _of_three(x, w):
    return total("y", (4,), {"k": 4}, lambda i, k: x[i] * w[k] * x[k])


def _largest(x, w):
    from tvm import te

    k = te.reduce_axis((0, 4), name="k")
    return te.compute((4,), lambda i: te.max(x[i] * w[k], axis=k), name="y")


def _twice(x, w):
    first = total("first", (8,), {"k": 4}, lambda i, k: x[i] * w[k])
    return total("y", (8,), {"k": 4}, lambda i, k: first[i] * w[k])


EXPRESSIONS = {
    "elements only": (lambda x, w: made("y", (4,), lambda i: x[i] * w[i]), "has 0 blocks that add up: none of y"),
    "two sums": (_twice, "has 2 blocks that add up: first, y"),
    "no product": (_summed, "block 'y' is not a sum of products of two elements"),
    "three factors": (_of_three, "block 'y' is not a sum of products of two elements"),
    "another combiner": (_largest, "block 'y' is not a sum of products of two elements"),
    "not affine": (
        lambda x, w: total("y", (2,), {"k": 4}, lambda i, k: x[i * k] * w[k]),
        r"block 'y': index 0 of x \(.*\) is not affine\nlet a block before it make a tensor in which it is",
    ),
    "a remainder": (
        lambda x, w: total("y", (2,), {"k": 8}, lambda i, k: x[i + k % 4] * w[k]),
        r"index 0 of x \(.*\) is not affine",
    ),
    "backwards": (
        lambda x, w: total("y", (4,), {"k": 4}, lambda i, k: x[7 - i] * w[k]),
        r"index 0 of x \(.*\) begins or walks below 0\nlet a block before it pad or flip the tensor",
    ),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_what_is_no_sum_of_products_is_refused(name: str) -> None:
    expression, message = EXPRESSIONS[name]
    x, w = tensor("x", 8), tensor("w", 8)
    with pytest.raises(HeronError) as caught:
        analyse_prim_func(prim_func(x, w, expression(x, w)), frozenset())
    assert re.search(message, str(caught.value)), str(caught.value)


def test_unknown_element_types_are_refused() -> None:
    x, w = tensor("x", 8, dtype="float64"), tensor("w", 8, dtype="float64")
    with pytest.raises(HeronError, match="tensor x has the element type float64\nsupported: u8, s8"):
        read(x, w, total("y", (1,), {"k": 8}, lambda _, k: x[k] * w[k]))


FUNCTION = """
def main(x: T.Buffer((4, 6), "int32"), w: T.Buffer((6,), "int32"), y: T.Buffer((4, 4), "int32")):
    {}
"""
NEST = """
    for i, j, k in T.grid(4, 4, 6):
        with T.sblock("y"):
            vi, vj, vk = T.axis.remap("{kinds}", [i, j, k])
            with T.init():
                y[{at}] = 0
            y[{at}] = y[{at}] + {read}[vi, vk] * w[vk]
"""
COPY = """
    {made} = T.sblock_alloc_buffer((4, 6), "int32")
    for i, j in T.grid(4, 6):
        with T.sblock("made"):
            vi, vj = T.axis.remap("{kinds}", [i, j])
            {statement}
"""
PLAIN = NEST.format(kinds="SSR", at="vi, vj", read="x")
FUNCTIONS = {
    "a result out of order": (NEST.format(kinds="SSR", at="vj, vi", read="x"), None),
    "a result in part": (
        NEST.format(kinds="SSR", at="vi, vj // 2", read="x"),
        r"index 1 of y \(.*\) is not affine",
    ),
    "a result at strides": (
        NEST.format(kinds="SSR", at="vi // 2 * 2, 0", read="x"),
        "is not affine",
    ),
    "an axis that is not in the result": (
        NEST.format(kinds="SSR", at="vi, 0", read="x"),
        "block 'y': dimension 1 of y is not one axis, all of it\nlet the block write its sums in order",
    ),
    "a diagonal": (
        NEST.format(kinds="SSR", at="vi, vi", read="x"),
        "block 'y': each of its spatial axes must be a dimension of the result",
    ),
    "an axis of another kind": (
        PLAIN.replace(
            'vi, vj, vk = T.axis.remap("SSR", [i, j, k])',
            'vj = T.axis.scan(4, j)\n            vi, vk = T.axis.remap("SR", [i, k])',
        ),
        "block 'y': axis vj is neither spatial nor a reduction",
    ),
    "a tensor that nothing writes": (
        '    made = T.sblock_alloc_buffer((4, 6), "int32")\n' + NEST.format(kinds="SSR", at="vi, vj", read="made"),
        "block 'y' reads made, which nothing has written",
    ),
    "a stage out of order": (
        COPY.format(made="made", kinds="SS", statement="made[vi, 5 - vj] = x[vi, vj]")
        + NEST.format(kinds="SSR", at="vi, vj", read="made"),
        "block 'made': it does not write the elements of its tensor one by one, in order",
    ),
    "a stage of two statements": (
        COPY.format(made="made", kinds="SS", statement="made[vi, vj] = 0\n            made[vi, vj] = x[vi, vj]")
        + NEST.format(kinds="SSR", at="vi, vj", read="made"),
        "block 'made': its body is not one assignment",
    ),
    "a statement outside of blocks": ("    y[0, 0] = x[0, 0] * w[0]\n" + PLAIN, "a statement that is no block"),
    "a result that is no argument": (
        '    z = T.sblock_alloc_buffer((4, 4), "int32")\n'
        + NEST.format(kinds="SSR", at="vi, vj", read="x").replace("y[", "z["),
        "the operator writes z, which is none of its arguments",
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_another_form_is_refused(name: str) -> None:
    body, message = FUNCTIONS[name]
    function = parsed(FUNCTION.format(body.strip()))
    if message is None:  # any order of the dimensions will do
        assert [axis.name for axis in analyse_prim_func(function, frozenset()).axes] == ["vj", "vi", "vk"]
        return
    with pytest.raises(HeronError) as caught:
        analyse_prim_func(function, frozenset())
    assert re.search(message, str(caught.value)), str(caught.value)
