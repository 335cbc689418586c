"""Inline assembly as calls of the runtime."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from heron_asp.backends.cuda.emulator.error import UnsupportedError

_ELEMENTS = {
    "f16": "heron::HALF",
    "bf16": "heron::BFLOAT",
    "f32": "heron::FLOAT",
    "s8": "heron::SIGNED",
    "u8": "heron::UNSIGNED",
    "s32": "heron::INT",
}
_INTEGERS = {"s8": "int8_t", "u8": "uint8_t", "s32": "int8_t", "u32": "uint8_t"}  # dp4a names a word of four by 32 bits
_REGISTERS = {"pred": "bool", "b32": "unsigned", "u32": "unsigned", "s32": "int", "f32": "float"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_DEPTHS = {"f16": (8, 16), "bf16": (8, 16), "s8": (16, 32), "u8": (16, 32)}


@dataclass(frozen=True)
class Instruction:
    """An instruction of PTX.

    Attributes:
        guard: the predicate it hangs on, as a C++ expression; empty if none.
        parts: of its name, between the dots.
        operands: as text; vectors keep their braces, addresses their brackets.
    """

    guard: str
    parts: tuple[str, ...]
    operands: tuple[str, ...]


@dataclass
class _Statement:
    """One asm statement while it is translated."""

    expressions: Sequence[str]
    where: str
    registers: dict[str, str] = field(default_factory=dict)

    def unknown(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"{self.where}: the emulator does not know the PTX `{what}`")

    def value(self, operand: str) -> str:
        """An operand as a C++ expression."""
        if operand.startswith("%") and operand[1:].isdigit() and int(operand[1:]) < len(self.expressions):
            return f"({self.expressions[int(operand[1:])]})"
        if operand in self.registers or re.fullmatch(r"-?\d+", operand):
            return operand
        raise self.unknown(operand)

    def address(self, operand: str) -> str:
        if not (operand.startswith("[") and operand.endswith("]")):
            raise self.unknown(operand)
        return self.value(operand[1:-1].strip())

    def values(self, operand: str) -> list[str]:
        """The parts of a vector; one of a scalar."""
        if not operand.startswith("{"):
            return [self.value(operand)]
        return [self.value(part.strip()) for part in operand[1:-1].split(",")]


def translate(template: str, expressions: Sequence[str], where: str) -> str:
    """The C++ statement, without its semicolon, for an asm statement.

    Args:
        template: its instructions.
        expressions: of its operands, outputs first.
        where: the line, for errors.

    Raises:
        UnsupportedError: an instruction or an operand is not known.
    """
    statement = _Statement(expressions, where)
    body = " ".join(_translated(statement, one) for one in _instructions(template, statement))
    return f"do {{ {body} }} while (0)"


def _instructions(template: str, statement: _Statement) -> Iterator[Instruction]:
    position = 0
    pattern = re.compile(r"[\s{}]*(?:@(!?)(\w+)\s+)?([\w.:]+)\s*([^;]*);|[\s{}]*\Z")
    while position < len(template):
        match = pattern.match(template, position)
        if match is None:
            raise statement.unknown(template[position:].strip()[:60])
        position = match.end()
        if match[3]:
            guard = f"{match[1]}{statement.value(match[2])}" if match[2] else ""
            parts = tuple(match[3].removeprefix(".").split("."))
            yield Instruction(guard, parts, tuple(_operands(match[4])))


def _operands(text: str) -> list[str]:
    """What commas outside of braces separate; `.reg .pred p` has blanks instead, and stays whole."""
    return [part.strip() for part in re.findall(r"(?:\{[^}]*\}|[^,{}])+", text) if part.strip()]


def _translated(statement: _Statement, one: Instruction) -> str:
    for prefix, translator in _TRANSLATORS.items():
        if ".".join(one.parts).startswith(prefix):
            code = translator(statement, one)
            return f"if ({one.guard}) {{ {code} }}" if one.guard else code
    raise statement.unknown(".".join(one.parts))


def _register(statement: _Statement, one: Instruction) -> str:
    kind, *names = re.split(r"[\s,]+", " ".join(one.operands).removeprefix("."))
    if kind not in _REGISTERS:
        raise statement.unknown(f".reg .{kind}")
    statement.registers.update(dict.fromkeys(names, kind))
    return " ".join(f"{_REGISTERS[kind]} {name} = 0; (void){name};" for name in names)


def _set_predicate(statement: _Statement, one: Instruction) -> str:
    _, comparison, kind = one.parts
    target, left, right = one.operands
    if comparison not in _COMPARISONS or kind not in _REGISTERS:
        raise statement.unknown(".".join(one.parts))
    number = _REGISTERS[kind]
    left, right = (f"({number}){statement.value(side)}" for side in (left, right))
    return f"{statement.value(target)} = {left} {_COMPARISONS[comparison]} {right};"


def _copy(statement: _Statement, one: Instruction) -> str:
    if one.parts[2] not in ("ca", "cg") or one.parts[3:5] != ("shared", "global") or len(one.operands) not in (3, 4):
        raise statement.unknown(".".join(one.parts))
    if any(not part.startswith("L2::") for part in one.parts[5:]):  # hints to the cache change no result
        raise statement.unknown(".".join(one.parts))
    to, source, *sizes = one.operands
    sizes = [statement.value(size) for size in sizes]
    if one.parts[2] == "cg" and sizes[0].strip("()") != "16":
        raise statement.unknown(f"cp.async.cg of {sizes[0]} bytes")
    return (
        f"heron::copy_async({statement.address(to)}, (const void*){statement.address(source)}, "
        f"(int){sizes[0]}, (int){sizes[-1]});"
    )


def _commit(statement: _Statement, one: Instruction) -> str:
    del statement, one
    return "heron::commit_copies();"


def _wait(statement: _Statement, one: Instruction) -> str:
    return f"heron::wait_copies({statement.value(one.operands[0])});"


def _wait_all(statement: _Statement, one: Instruction) -> str:
    del statement, one
    return "heron::commit_copies(); heron::wait_copies(0);"


def _store(statement: _Statement, one: Instruction) -> str:
    if one.parts[-1] not in ("u32", "b32", "s32") or one.parts[2:-1] not in ((), ("v2",), ("v4",)):
        raise statement.unknown(".".join(one.parts))
    words = statement.values(one.operands[1])
    listed = ", ".join(f"(unsigned){word}" for word in words)
    return (
        f"{{ const unsigned heron_words[] = {{{listed}}}; "
        f"heron::store_shared({statement.address(one.operands[0])}, heron_words, {len(words)}); }}"
    )


def _load_matrix(statement: _Statement, one: Instruction) -> str:
    *front, last = one.parts[4:]
    count = int(front[0][1:]) if front and front[0] in ("x1", "x2", "x4") else 0
    words = statement.values(one.operands[0])
    if one.parts[:4] != ("ldmatrix", "sync", "aligned", "m8n8") or last != "b16" or count != len(words):
        raise statement.unknown(".".join(one.parts))
    if front[1:] not in (["shared"], ["trans", "shared"]):
        raise statement.unknown(".".join(one.parts))
    targets = ", ".join(f"&{word}" for word in words)
    transposed = "true" if "trans" in front else "false"
    return (
        f"{{ unsigned* heron_words[] = {{{targets}}}; heron::matrix_load(heron_words, {count}, {transposed}, "
        f"{statement.address(one.operands[1])}, __LINE__); }}"
    )


def _multiply(statement: _Statement, one: Instruction) -> str:
    name = ".".join(one.parts)
    match = re.fullmatch(r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.(\w+)\.(\w+)\.(\w+)\.(\w+)", name)
    if match is None or len(one.operands) != 4:
        raise statement.unknown(name)
    depth, (d, a, b, c) = int(match[1]), match.groups()[1:]
    sums = {"f16": ("f16", "f32"), "bf16": ("f32",), "s8": ("s32",), "u8": ("s32",)}.get(a, ())
    alike = a == b or {a, b} == {"s8", "u8"}
    if c != d or d not in sums or not alike or depth not in _DEPTHS[a]:
        raise statement.unknown(name)
    results, left, right, start = (statement.values(operand) for operand in one.operands)
    registers = depth // (8 if a in ("f16", "bf16") else 16)
    lengths = (len(results), len(left), len(right), len(start))
    if lengths != (4 if d != "f16" else 2, 2 * registers, registers, 4 if d != "f16" else 2):
        raise statement.unknown(f"{name} with {lengths} registers")
    return (
        f"{{ const unsigned heron_a[] = {{{_words(left)}}}, heron_b[] = {{{_words(right)}}}, "
        f"heron_c[] = {{{_words(start)}}}; void* heron_d[] = {{{', '.join(f'&{one}' for one in results)}}}; "
        f"heron::matrix_multiply({_ELEMENTS[a]}, {_ELEMENTS[b]}, {_ELEMENTS[d]}, {depth}, "
        f"heron_a, heron_b, heron_c, heron_d, __LINE__); }}"
    )


def _words(values: Sequence[str]) -> str:
    return ", ".join(f"heron::bits({value})" for value in values)


def _dot(statement: _Statement, one: Instruction) -> str:
    if len(one.parts) != 3 or any(part not in _INTEGERS for part in one.parts[1:]):
        raise statement.unknown(".".join(one.parts))
    result, a, b, c = (statement.value(operand) for operand in one.operands)
    kinds = ", ".join(_INTEGERS[part] for part in one.parts[1:])
    return f"{result} = heron::dot<{kinds}>((unsigned){a}, (unsigned){b}, (int){c});"


_TRANSLATORS: dict[str, Callable[[_Statement, Instruction], str]] = {
    "reg": _register,
    "setp.": _set_predicate,
    "cp.async.commit_group": _commit,
    "cp.async.wait_group": _wait,
    "cp.async.wait_all": _wait_all,
    "cp.async.c": _copy,
    "st.shared": _store,
    "ldmatrix.": _load_matrix,
    "mma.": _multiply,
    "dp4a.": _dot,
}
