"""One generic builder that makes TVM's description and implementation of an intrinsic from its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from heron_asp.dtypes import DTYPES, DType, twins
from heron_asp.intrinsics import Argument, Intrinsic, IntrinsicOperand, tvm_vector
from heron_asp.schedule.calls import IntrinsicName
from heron_asp.schedule.script import registered_name

_registered: dict[str, Intrinsic] = {}


def register(intrinsic: Intrinsic, seating: str, stored: tuple[str, ...] = ()) -> str:
    """Registers an intrinsic with TVM for one seating of the operands, once.

    Args:
        intrinsic: the data.
        seating: `straight`, or `crossed` where the operator multiplies the second operand with the first.
        stored: element types of the tensors in its slots, where these are not its own: of equal size, but signed for
            unsigned or the other way round. It multiplies the elements with an offset then, see `Operand`.

    Returns:
        The name that `Schedule.tensorize` takes.
    """
    name = registered_name(IntrinsicName(intrinsic.name, seating, stored))
    if _registered.get(name) != intrinsic:
        from tvm.s_tir import TensorIntrin
        from tvm.script import from_source

        operands = _operands(intrinsic, stored)
        description = from_source(_description(intrinsic, operands, seating))
        implementation = from_source(_implementation(intrinsic, operands))
        TensorIntrin.register(name, description, implementation, override=True)
        _registered[name] = intrinsic
    return name


_NAMES = ("a", "b", "c")


@dataclass(frozen=True)
class _Operand:
    """What an intrinsic reads or writes.

    Attributes:
        name: in the functions below.
        data: the intrinsic's own description.
        stored: type of the elements in memory.
        offset: what turns an element into one of the intrinsic's own type, half of whose values lie on either side of
            it: both types are of equal size, so that inverting the uppermost bit adds it.
    """

    name: str
    data: IntrinsicOperand
    stored: DType
    offset: int


def _operands(intrinsic: Intrinsic, stored: tuple[str, ...]) -> list[_Operand]:
    made = []
    own = (*intrinsic.operands, intrinsic.result)
    for name, operand, dtype in zip_longest(_NAMES, own, stored):
        has = DTYPES[dtype or operand.dtype]
        offset = next((by for one, other, by in twins() if (one, other) == (has.name, operand.dtype)), 0)
        made.append(_Operand(name, operand, has, offset))
    return made


def _signature(
    intrinsic: Intrinsic, operands: Sequence[_Operand], function: str, seating: str = "straight"
) -> list[str]:
    parameters, regions = [], []
    for operand in operands:
        extents = [intrinsic.extents[role] for role in operand.data.index]
        shape = f"({', '.join(map(str, extents))},)"
        parameters.append(f'{operand.name}: T.Buffer({shape}, "{operand.stored.storage}", offset_factor=1)')
        regions.append(f"{operand.name}[{', '.join(f'0:{extent}' for extent in extents)}]")
    first, second = regions[:2] if seating == "straight" else regions[1::-1]  # tensorize compares them in order
    return [
        "@T.prim_func(s_tir=True)",
        f"def {function}({', '.join(parameters)}) -> None:",
        '    with T.sblock("root"):',
        f"        T.reads({regions[2]}, {first}, {second})",
        f"        T.writes({regions[2]})",
    ]


def _description(intrinsic: Intrinsic, operands: Sequence[_Operand], seating: str) -> str:
    """The loop nest that the intrinsic computes: result roles outermost, then what it sums over."""
    roles = [*intrinsic.result.index, *(axis.role for axis in intrinsic.axes if axis.kind == "reduce")]
    kinds = "".join("S" if axis in intrinsic.result.index else "R" for axis in roles)
    lines = _signature(intrinsic, operands, "description", seating)
    indent = "        "
    for role in roles:
        lines.append(f"{indent}for {role} in T.serial(0, {intrinsic.extents[role]}):")
        indent += "    "
    bound = ", ".join(f"v_{role}" for role in roles)
    lines.append(f'{indent}with T.sblock("update"):')
    remap = f'T.axis.remap("{kinds}", [{", ".join(roles)}])'
    lines.append(f"{indent}    {bound} = {remap}")
    first, second, result = (f"{one.name}[{', '.join(f'v_{role}' for role in one.data.index)}]" for one in operands)
    accumulator = DTYPES[intrinsic.result.dtype].storage
    factors = [_widened(first, operands[0], accumulator), _widened(second, operands[1], accumulator)]
    factors = factors if seating == "straight" else factors[::-1]
    lines.append(f"{indent}    {result} = {result} + {factors[0]} * {factors[1]}")
    return "\n".join(lines) + "\n"


def _widened(element: str, operand: _Operand, accumulator: str) -> str:
    if operand.stored.name == "bf16":
        return f'T.reinterpret("float32", T.shift_left(T.Cast("uint32", {element}), T.uint32(16)))'
    value = f'T.Cast("{accumulator}", {element})' if operand.stored.storage != accumulator else element
    return f"({value} + T.{accumulator}({operand.offset}))" if operand.offset else value


def _implementation(intrinsic: Intrinsic, operands: Sequence[_Operand]) -> str:
    """The call. One expression: a local variable would become a buffer that is hoisted to a workspace call."""
    lines = _signature(intrinsic, operands, "implementation")
    arguments = ", ".join(_argument(intrinsic, operands, argument) for argument in intrinsic.reached.arguments)
    returns = tvm_vector(intrinsic.reached.returns)
    if intrinsic.reached.llvm is not None:
        llvm = f'T.llvm_lookup_intrinsic_id("{intrinsic.reached.llvm}")'
        call = f'T.call_llvm_pure_intrin({llvm}, {arguments}, dtype="{returns}")'
    else:
        call = f'T.call_pure_extern("{returns}", "{intrinsic.reached.function}", {arguments})'
    zeros = ", ".join("0" for _ in intrinsic.result.index[:-1])
    lanes = intrinsic.elements(intrinsic.result)
    index = f"{zeros}, T.ramp(T.int32(0), 1, {lanes})" if zeros else f"T.ramp(T.int32(0), 1, {lanes})"
    lines.append(f"        c[{index}] = {call}")
    return "\n".join(lines) + "\n"


def _argument(intrinsic: Intrinsic, operands: Sequence[_Operand], argument: Argument) -> str:
    """An operand's elements, loaded at once, replicated if asked for, as the machine value that the call takes."""
    operand = operands[2 if argument.load == "result" else argument.load]
    lanes = intrinsic.elements(operand.data)
    storage = operand.stored.storage
    loaded = f"{storage}x{lanes}" if lanes > 1 else storage
    value = f'{operand.name}.vload([{", ".join("0" for _ in operand.data.index)}], dtype="{loaded}")'
    if argument.broadcast:
        bits = lanes * operand.stored.bytes * 8
        value, loaded, lanes = f'T.reinterpret("int{bits}", {value})', f"int{bits}", 1
    if operand.offset:
        # Ahead of the broadcast, as one scalar: a vector costs an instruction more, and LLVM 22 does not come back from
        # the inversion of what is broadcast.
        value = f"T.bitwise_xor({value}, {_uppermost_bits(operand, loaded, lanes)})"
    if argument.broadcast:
        value, loaded = f"T.broadcast({value}, {argument.broadcast})", f"{loaded}x{argument.broadcast}"
    wanted = tvm_vector(argument.type)
    return value if loaded == wanted else f'T.reinterpret("{wanted}", {value})'


def _uppermost_bits(operand: _Operand, loaded: str, lanes: int) -> str:
    """The uppermost bit of each element, as a vector of elements or as the one integer that holds them all."""
    if lanes > 1 or loaded == operand.stored.storage:
        upper = f"T.{operand.stored.storage}({-operand.offset})"  # in the type of the memory
        return f"T.broadcast({upper}, {lanes})" if lanes > 1 else upper
    bits, size = int(loaded.removeprefix("int")), operand.stored.bytes * 8
    return f"T.{loaded}({sum(1 << bit for bit in range(size - 1, bits, size)) - (1 << bits)})"
