"""C declarations as text."""

from __future__ import annotations

from dataclasses import dataclass

# How C stores an element. f16 and bf16 have no type in every C compiler: the bits are passed as integers.
C_TYPES = {
    "u8": "uint8_t",
    "s8": "int8_t",
    "s16": "int16_t",
    "s32": "int32_t",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f32": "float",
}
CTYPES = {
    name: "c_float" if c_type == "float" else f"c_{c_type.removesuffix('_t')}" for name, c_type in C_TYPES.items()
}
NOTES = {
    "f16": "f16 elements are passed as uint16_t: the bits of an IEEE half.",
    "bf16": "bf16 elements are passed as uint16_t: the upper half of the bits of a float.",
}
# Steps of epilogues, as the header explains them.
STEPS = {
    "bias": "bias: adds the bias of the channel",
    "add": "add: adds the residual",
    "relu": "relu: max(., 0)",
    "clip": "clip=LOW:HIGH: min(max(., LOW), HIGH)",
    "requantize": "requantize: round(. * scale) + zero_point, saturated; a product of floats, ties go to the even one",
}
_WIDTH = 110


@dataclass(frozen=True)
class Prototype:
    """A C function: its name, and its declaration without the semicolon."""

    name: str
    parameters: tuple[str, ...]
    returns: str = "int"

    @property
    def text(self) -> str:
        """The declaration, broken into lines that are not too long."""
        head = f"{self.returns}{'' if self.returns.endswith('*') else ' '}{self.name}("
        return folded(head, self.parameters or ("void",), ")", " " * len(head))


def folded(head: str, parts: tuple[str, ...], tail: str, indent: str) -> str:
    """A list with commas, broken into lines that are not too long.

    Args:
        head: what stands before the list.
        parts: the elements; at least one.
        tail: what stands behind the last one.
        indent: begins all lines but the first.
    """
    lines, line = [], head
    for number, part in enumerate(parts):
        piece = part + (tail if number == len(parts) - 1 else ",")
        if len(line) + 1 + len(piece) > _WIDTH and number > 0:
            lines.append(line)
            line = indent + piece
        else:
            line += (" " if number > 0 else "") + piece
    return "\n".join([*lines, line])
