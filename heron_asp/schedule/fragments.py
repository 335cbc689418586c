"""TVM's description and implementation of what moves, clears and multiplies fragments: operands that a warp holds.

A matrix instruction of a GPU finds its operands in fragments, which all threads of a warp hold together, each some
elements. TVM reaches them by five intrinsics (CUDA C++ Programming Guide, "Warp Matrix Functions"): two loads, one for
each operand, a fill, the product, and a store. Each is made here from the data of an `Intrinsic` whose operands have
the roles (row, sum) and (sum, column), in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heron_asp.dtypes import DTYPES
from heron_asp.errors import InternalError
from heron_asp.intrinsics import Intrinsic

LOADS = ("load_a", "load_b")
_OWN = {"bf16": "bfloat16"}  # fragments have TVM's own types
_registered: dict[str, Intrinsic] = {}


@dataclass(frozen=True)
class FragmentCall:
    """One of the five intrinsics.

    Attributes:
        intrinsic: name of the instruction.
        part: `load_a`, `load_b`, `fill`, `multiply` or `store`.
        turned: the operands, `a` or `b`, that lie with their roles the other way round: (sum, row), (column, sum).
        memory: TVM's scope of the memory that is read or written; empty where there is none.
    """

    intrinsic: str
    part: str
    turned: str = ""
    memory: str = ""

    @property
    def name(self) -> str:
        """Under which TVM knows it."""
        words = ["heron", self.intrinsic, self.part, self.turned, self.memory.replace(".", "_")]
        return "_".join(word for word in words if word)


def register_fragment(intrinsic: Intrinsic, call: FragmentCall) -> str:
    """Registers one of the five with TVM, once.

    Returns:
        The name that `Schedule.tensorize` takes.
    """
    if _registered.get(call.name) != intrinsic:
        from tvm.s_tir import TensorIntrin
        from tvm.script import from_source

        made = _Maker(intrinsic, call)
        description, implementation = (from_source(made.function(body)) for body in (made.described, made.called))
        TensorIntrin.register(call.name, description, implementation, override=True)
        _registered[call.name] = intrinsic
    return call.name


@dataclass(frozen=True)
class _Buffer:
    """A matrix that the intrinsic sees: its name in the text, extents, element type and scope."""

    name: str
    roles: tuple[str, str]
    extents: tuple[int, int]
    storage: str
    scope: str

    @property
    def region(self) -> str:
        return f"{self.name}[{', '.join(f'0:{extent}' for extent in self.extents)}]"

    @property
    def index(self) -> str:
        """Which of the fragments that lie one after the other it is."""
        rows, columns = self.extents
        pitch = f"{self.name}_row"
        inner = f"{self.name}.elem_offset % {pitch} // {columns}"
        return f"{self.name}.elem_offset // {pitch} // {rows} * ({pitch} // {columns}) + {inner}"

    def at(self, roles: Sequence[str] = ()) -> str:
        return f"{self.name}[{', '.join(f'v_{role}' for role in roles or self.roles)}]"


class _Maker:
    def __init__(self, intrinsic: Intrinsic, call: FragmentCall) -> None:
        first, second, result = intrinsic.operands[0].index, intrinsic.operands[1].index, intrinsic.result.index
        if len(result) != 2 or len(first) != 2 or first[0] != result[0] or second != (first[1], result[1]):
            raise InternalError(f"intrinsic '{intrinsic.name}' is no product of a matrix with a matrix")
        self.intrinsic, self.call = intrinsic, call
        self.extents = [intrinsic.extents[role] for role in (*result, first[1])]
        types = [_OWN.get(one.dtype, DTYPES[one.dtype].storage) for one in (*intrinsic.operands, intrinsic.result)]
        if not intrinsic.fragments:
            raise InternalError(f"intrinsic '{intrinsic.name}' has no fragments")
        fragments = [
            self._buffer(operand, roles, storage, scope)
            for operand, roles, storage, scope in zip(
                "abc", (first, second, result), types, intrinsic.fragments, strict=True
            )
        ]
        own = {"load_a": 0, "load_b": 1}.get(call.part, 2)
        memory = self._buffer("ab"[own] if own < 2 else "c", fragments[own].roles, types[own], call.memory, "memory")
        self.read, self.written, self.described, self.called = {
            "load_a": ([memory], fragments[0], self._copied, self._loaded),
            "load_b": ([memory], fragments[1], self._copied, self._loaded),
            "fill": ([], fragments[2], self._cleared, self._filled),
            "multiply": ([fragments[2], *fragments[:2]], fragments[2], self._added, self._multiplied),
            "store": ([fragments[2]], memory, self._copied, self._stored),
        }[call.part]

    def _buffer(self, operand: str, roles: Sequence[str], storage: str, scope: str, name: str = "") -> _Buffer:
        ordered = tuple(roles) if name or operand not in self.call.turned else tuple(reversed(roles))
        assert len(ordered) == 2
        extents = self.intrinsic.extents[ordered[0]], self.intrinsic.extents[ordered[1]]
        return _Buffer(name or operand, ordered, extents, storage, scope)

    def function(self, body: Any) -> str:
        """The text of a function with the buffers as parameters."""
        buffers = list({one.name: one for one in (*self.read, self.written)}.values())
        described = body == self.described
        lines = [
            "@T.prim_func(s_tir=True)",
            f"def made({', '.join(f'{one.name}_handle: T.handle' for one in buffers)}) -> None:",
        ]
        for one in buffers:
            strides = "" if described else f", strides=[{one.name}_row, {one.name}_step]"
            lines += [] if described else [f"    {one.name}_{what} = T.int32()" for what in ("row", "step")]
            lines.append(
                f'    {one.name} = T.match_buffer({one.name}_handle, {one.extents}, "{one.storage}", align=64, '
                f'offset_factor={one.extents[1]}, scope="{one.scope}"{strides})'
            )
        lines.append('    with T.sblock("root"):')
        lines.append(f"        T.reads({', '.join(one.region for one in self.read)})")
        lines.append(f"        T.writes({self.written.region})")
        return "\n".join([*lines, *(f"        {line}" for line in body())]) + "\n"

    # -- what each does, as loops --

    def _loops(self, roles: Sequence[str], kinds: str, statement: str) -> list[str]:
        extents = ", ".join(str(self.intrinsic.extents[role]) for role in roles)
        return [
            f"for {', '.join(roles)} in T.grid({extents}):",
            '    with T.sblock("element"):',
            f'        {", ".join(f"v_{role}" for role in roles)} = T.axis.remap("{kinds}", [{", ".join(roles)}])',
            f"        {statement}",
        ]

    def _copied(self) -> list[str]:
        (source,) = self.read
        return self._loops(source.roles, "SS", f"{self.written.at(source.roles)} = {source.at()}")

    def _cleared(self) -> list[str]:
        one = self.written
        return self._loops(one.roles, "SS", f"{one.at()} = T.{one.storage}(0)")

    def _added(self) -> list[str]:
        result, first, second = self.read
        factors = [
            one.at() if one.storage == result.storage else f'T.Cast("{result.storage}", {one.at()})'
            for one in (first, second)
        ]
        summed = next(role for role in first.roles if role not in result.roles)
        return self._loops(
            (*result.roles, summed), "SSR", f"{result.at()} = {result.at()} + {factors[0]} * {factors[1]}"
        )

    # -- ... and as calls --

    @property
    def _shape(self) -> str:
        return ", ".join(map(str, self.extents))

    def _loaded(self) -> list[str]:
        (memory,), one = self.read, self.written
        operand = "ab"[LOADS.index(self.call.part)]
        layout = "col_major" if operand in self.call.turned else "row_major"
        pointer = f'{memory.name}.access_ptr("r", ptr_type="{memory.storage}")'
        arguments = f'{one.name}.data, {self._shape}, {one.index}, {pointer}, {memory.name}_row, "{layout}"'
        return [f'T.evaluate(T.tvm_load_matrix_sync({arguments}, dtype="void"))']

    def _filled(self) -> list[str]:
        one = self.written
        return [
            f'T.evaluate(T.tvm_fill_fragment({one.name}.data, {self._shape}, {one.index}, T.float32(0), dtype="void"))'
        ]

    def _multiplied(self) -> list[str]:
        result, first, second = self.read
        arguments = ", ".join(f"{one.name}.data, {one.index}" for one in (result, first, second, result))
        return [f'T.evaluate(T.tvm_mma_sync({arguments}, dtype="void"))']

    def _stored(self) -> list[str]:
        (one,), memory = self.read, self.written
        pointer = f'{memory.name}.access_ptr("w", ptr_type="{memory.storage}")'
        arguments = f'{one.name}.data, {self._shape}, {one.index}, {pointer}, {memory.name}_row, "row_major"'
        return [f'T.evaluate(T.tvm_store_matrix_sync({arguments}, dtype="void"))']
