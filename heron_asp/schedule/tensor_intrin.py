"""One generic builder that makes TVM's description and implementation of an intrinsic from its data."""

from __future__ import annotations

from heron_asp.dtypes import DTYPES
from heron_asp.intrinsics import Argument, Intrinsic, IntrinsicOperand, tvm_vector
from heron_asp.schedule.plan import IntrinsicName
from heron_asp.schedule.script import registered_name

_registered: dict[str, Intrinsic] = {}


def register(intrinsic: Intrinsic, seating: str) -> str:
    """Registers an intrinsic with TVM for one seating of the operands, once.

    Args:
        intrinsic: the data.
        seating: `straight`, or `crossed` where the operator multiplies the second operand with the first.

    Returns:
        The name that `Schedule.tensorize` takes.
    """
    name = registered_name(IntrinsicName(intrinsic.name, seating))
    if _registered.get(name) != intrinsic:
        from tvm.s_tir import TensorIntrin
        from tvm.script import from_source

        description = from_source(_description(intrinsic, seating))
        implementation = from_source(_implementation(intrinsic))
        TensorIntrin.register(name, description, implementation, override=True)
        _registered[name] = intrinsic
    return name


_NAMES = ("a", "b", "c")


def _operands(intrinsic: Intrinsic) -> list[tuple[str, IntrinsicOperand]]:
    return list(zip(_NAMES, (*intrinsic.operands, intrinsic.result), strict=True))


def _signature(intrinsic: Intrinsic, function: str, seating: str = "straight") -> list[str]:
    parameters, regions = [], []
    for name, operand in _operands(intrinsic):
        extents = [intrinsic.extents[role] for role in operand.index]
        shape = f"({', '.join(map(str, extents))},)"
        parameters.append(f'{name}: T.Buffer({shape}, "{DTYPES[operand.dtype].storage}", offset_factor=1)')
        regions.append(f"{name}[{', '.join(f'0:{extent}' for extent in extents)}]")
    first, second = regions[:2] if seating == "straight" else regions[1::-1]  # tensorize compares them in order
    return [
        "@T.prim_func(s_tir=True)",
        f"def {function}({', '.join(parameters)}) -> None:",
        '    with T.sblock("root"):',
        f"        T.reads({regions[2]}, {first}, {second})",
        f"        T.writes({regions[2]})",
    ]


def _description(intrinsic: Intrinsic, seating: str) -> str:
    """The loop nest that the intrinsic computes: result roles outermost, then what it sums over."""
    roles = [*intrinsic.result.index, *(axis.role for axis in intrinsic.axes if axis.kind == "reduce")]
    kinds = "".join("S" if axis in intrinsic.result.index else "R" for axis in roles)
    lines = _signature(intrinsic, "description", seating)
    indent = "        "
    for role in roles:
        lines.append(f"{indent}for {role} in T.serial(0, {intrinsic.extents[role]}):")
        indent += "    "
    bound = ", ".join(f"v_{role}" for role in roles)
    lines.append(f'{indent}with T.sblock("update"):')
    remap = f'T.axis.remap("{kinds}", [{", ".join(roles)}])'
    lines.append(f"{indent}    {bound} = {remap}")
    element = {
        name: f"{name}[{', '.join(f'v_{role}' for role in operand.index)}]" for name, operand in _operands(intrinsic)
    }
    accumulator = DTYPES[intrinsic.result.dtype].storage
    first, second = (
        _widened(element[name], operand.dtype, accumulator)
        for name, operand in (_operands(intrinsic)[:2] if seating == "straight" else _operands(intrinsic)[1::-1])
    )
    lines.append(f"{indent}    {element['c']} = {element['c']} + {first} * {second}")
    return "\n".join(lines) + "\n"


def _widened(element: str, dtype: str, accumulator: str) -> str:
    if dtype == "bf16":
        return f'T.reinterpret("float32", T.shift_left(T.Cast("uint32", {element}), T.uint32(16)))'
    return f'T.Cast("{accumulator}", {element})' if DTYPES[dtype].storage != accumulator else element


def _implementation(intrinsic: Intrinsic) -> str:
    """The call. One expression: a local variable would become a buffer that is hoisted to a workspace call."""
    lines = _signature(intrinsic, "implementation")
    arguments = ", ".join(_argument(intrinsic, argument) for argument in intrinsic.reached.arguments)
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


def _argument(intrinsic: Intrinsic, argument: Argument) -> str:
    """An operand's elements, loaded at once, replicated if asked for, as the machine value that the call takes."""
    name, operand = _operands(intrinsic)[2 if argument.load == "result" else argument.load]
    lanes = intrinsic.elements(operand)
    storage = DTYPES[operand.dtype].storage
    loaded = f"{storage}x{lanes}" if lanes > 1 else storage
    value = f'{name}.vload([{", ".join("0" for _ in operand.index)}], dtype="{loaded}")'
    if argument.broadcast:
        bits = lanes * DTYPES[operand.dtype].bytes * 8
        value = f'T.broadcast(T.reinterpret("int{bits}", {value}), {argument.broadcast})'
        loaded = f"int{bits}x{argument.broadcast}"
    wanted = tvm_vector(argument.type)
    return value if loaded == wanted else f'T.reinterpret("{wanted}", {value})'
