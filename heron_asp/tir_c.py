"""TIR expressions of integers as C."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from heron_asp.errors import InternalError

Load: TypeAlias = Callable[[str, Sequence[str]], str]

_SIGNS = {
    "Add": "+", "Sub": "-", "Mul": "*", "RShift": ">>", "LShift": "<<", "BitwiseXor": "^",
    "EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "And": "&&", "Or": "||",
}  # fmt: skip
# Operations that C has no sign for, and how it writes them. C rounds a quotient towards zero, TIR rounds it down.
_FUNCTIONS = {"Min": "least", "Max": "most", "FloorDiv": "quotient", "FloorMod": "remainder"}
_BODIES = {
    "least": ("return a < b ? a : b;",),
    "most": ("return a > b ? a : b;",),
    "quotient": ("return a / b - (a % b != 0 && (a < 0) != (b < 0));",),
    "remainder": ("const {type} rest = a % b;", "return rest + (rest != 0 && (rest < 0) != (b < 0) ? b : 0);"),
}
_NARROW = {"int8", "int16", "uint8", "uint16"}
_TYPES = {*_NARROW, "int32", "int64", "uint32", "uint64"}
WORDS = frozenset(f"{name}_{dtype}" for name in _BODIES for dtype in _TYPES)


def expression(value: Any, variables: Mapping[Any, str], load: Load) -> str:
    """An expression in C, in brackets where it is more than a word; it may call functions of `helpers`.

    Args:
        value: integers and comparisons, loads of tensors, choices between them. C evaluates only the side of a choice
            that is taken, as TIR does.
        variables: how C writes the variables.
        load: writes a load, from the tensor's name and its indices in C.

    Raises:
        InternalError: the expression has an operation or a type that is not known here.
    """
    from tvm.ir.prim import expr as prim

    def of(one: Any) -> str:
        for variable, text in variables.items():
            if one.same_as(variable):
                return text
        if isinstance(one, prim.IntImm):
            return str(int(one.value)) if int(one.value) >= 0 else f"({int(one.value)})"
        if hasattr(one, "indices"):
            return load(str(one.source.name), [of(index) for index in one.indices])
        if getattr(getattr(one, "op", None), "name", "") == "prim.if_then_else":
            condition, first, second = (of(argument) for argument in one.args)
            return f"({condition} ? {first} : {second})"
        kind = type(one).__name__
        if kind == "Cast":
            return f"({_c_type(one)}){of(one.value)}"
        if kind == "Not":
            return f"!{of(one.a)}"
        if kind in _FUNCTIONS:
            _c_type(one)
            return f"{_FUNCTIONS[kind]}_{one.ty}({bare(of(one.a))}, {bare(of(one.b))})"
        if kind not in _SIGNS:
            raise InternalError(f"{one}: {kind} is no operation that is known here")
        text = f"({of(one.a)} {_SIGNS[kind]} {of(one.b)})"
        return f"({_c_type(one)}){text}" if str(one.ty) in _NARROW else text  # C computes in int

    return of(value)


def _c_type(value: Any) -> str:
    if str(value.ty) not in _TYPES:
        raise InternalError(f"{value}: {value.ty} is no type that is known here")
    return f"{value.ty}_t"


def bare(text: str) -> str:
    """An expression without brackets around all of it."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return text[1:-1] if at == len(text) - 1 and text.startswith("(") else text
    return text


def helpers(texts: Iterable[str]) -> list[str]:
    """The C functions that expressions among some texts call."""
    called = {word for text in texts for word in re.findall(r"\b[a-z]+_u?int\d+\b(?=\()", text)}
    return [_helper(word) for word in sorted(called & WORDS)]


def _helper(word: str) -> str:
    name, _, dtype = word.partition("_")
    lines = [f"    {line}".replace("{type}", f"{dtype}_t") for line in _BODIES[name]]
    return "\n".join([f"static inline {dtype}_t {word}({dtype}_t a, {dtype}_t b)", "{", *lines, "}"])


def flat(indices: Sequence[str], shape: Sequence[int]) -> str:
    """The place of an element, counted row by row, as a C expression."""
    text = "0"
    for index, extent in zip(indices, shape, strict=True):
        parts = [*([f"{text} * {extent}"] if text != "0" else []), *([index] if index != "0" else [])]
        text = f"({' + '.join(parts)})" if text != "0" else index
    return bare(text)
