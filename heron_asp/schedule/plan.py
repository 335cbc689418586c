"""From the steps of a sketch and an assignment to a list of calls of `tvm.s_tir.Schedule`.

A call is data: it is executed (`replay`) or printed as Python (`script`), so what is shown is what is run. The first
one expresses the operator over padded extents, the last ones may skip zeros and say what sums begin with, all others
are primitives of TVM's. This module knows those and named loops; it knows no accelerator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from heron_asp.analysis import BlockFacts
from heron_asp.errors import InternalError
from heron_asp.schedule.calls import Argument, Call, Form, IndexMap, IntrinsicName, Ref, Skip, Source
from heron_asp.schedule.fragments import FragmentCall
from heron_asp.schedule.start import Start
from heron_asp.schedule.zeros import Window
from heron_asp.sketch import Sketch
from heron_asp.terms import Term, Value, plain, text

_ALIGNED = 64  # elements; TVM pads a row to some elements beyond a multiple of this, and no padding is as long
Values: TypeAlias = Mapping[Value, Value]


def plan(block: BlockFacts, sketch: Sketch, values: Values) -> list[Call]:
    """The calls that make the program of an assignment.

    Raises:
        InternalError: a step names a primitive, loop or block that does not exist.
    """
    planner = _Planner(block, sketch, values)
    for step in sketch.steps:
        if step.taken(values):
            planner.take(step.primitive)
    if planner.skips:
        planner.calls.append(Call("skip_zeros", (block.block, *planner.skips)))
    return [*planner.calls, *planner.last]


class _Planner:
    """Replays steps on names: which loops and blocks exist, and what they are called."""

    def __init__(self, block: BlockFacts, sketch: Sketch, values: Values) -> None:
        self.block = block
        self.sketch = sketch
        self.values = values
        self.calls: list[Call] = []
        self.names: dict[Value, str] = {}
        self.loops: list[Term] = []  # of the block, outermost first
        self.kind: dict[Value, str] = {axis.name: axis.kind for axis in block.axes}
        self.kind["fused"] = "spatial"
        self.slot = {tensor.name: slot for slot, tensor in enumerate(block.operands)}
        self.rank = {tensor.name: len(tensor.shape) for tensor in (*block.operands, block.result)}
        if block.finish is not None:
            self.rank[block.result.name] = len(block.finish.parameter.shape)
        self.rank_of = {copy: self.rank[text(tensor)] for copy, _, tensor, _ in sketch.of("copy")}
        self.form = Form()
        self._call("express", self.form)
        self.skips: list[Skip] = []
        self.last: list[Call] = []
        self._call("get_sblock", block.block, results=[self._name(block.block)])
        self.written = block.result.name  # the block that writes the result, by TVM's name

    # -- primitives, by TVM's names --------------------------------------------------------------------------------

    def take(self, primitive: Term) -> None:
        """Replays one step."""
        method = getattr(self, f"_do_{primitive.name}", None)
        if method is None:
            raise InternalError(f"step {primitive}: no schedule primitive '{primitive.name}' is known")
        method(*primitive.arguments)

    def _do_pad(self, block: Value) -> None:
        extents = {axis.name: self._number(Term("extent", (block, axis.name))) for axis in self.block.axes}
        padded = tuple((name, extent) for name, extent in extents.items() if extent != self.block.extents[name])
        self._form(padded=padded)

    def _do_move(self, _block: Value, axis: Value) -> None:
        self._form(innermost=text(axis))

    def _do_shift(self, _block: Value, tensor: Value, offset: Value) -> None:
        self._form(shifts=(*self.form.shifts, (text(tensor), self._number(offset))))

    def _do_native(self, _block: Value) -> None:
        self._form(native=True)

    def _form(self, **changed: Any) -> None:
        self.form = replace(self.form, **changed)
        self.calls[0] = Call("express", (self.form,))

    def _do_set_scope(self, copy: Value, scope: Value) -> None:
        self._call("set_scope", self._ref(copy), 0, text(scope))
        if copy == self.block.block:
            self.written = f"{self.block.result.name}_{text(scope)}"

    def _do_reverse_compute_inline(self, copy: Value) -> None:
        self._call("reverse_compute_inline", self._ref(copy))

    def _do_get_sblock(self, copy: Value, what: Term) -> None:
        if what.name not in ("pad", "start"):
            raise InternalError(f"get_sblock({text(copy)}, {what}): only a padding or a start is found by its name")
        self._call("get_sblock", f"{text(what.arguments[0])}_{what.name}", results=[self._name(copy)])

    def _do_cache_read(self, copy: Value, block: Value, tensor: Value, scope: Value) -> None:
        slot, options = self.slot[text(tensor)], []
        if text(tensor) in self.block.read_by_stages or self.form.shifts:  # which keep to the tensor itself
            options = [("consumer_blocks", (self._ref(block),))]
        self._call("cache_read", self._ref(block), slot, text(scope), results=[self._name(copy)], options=options)

    def _do_cache_write(self, copy: Value, block: Value, _tensor: Value, scope: Value) -> None:
        self._call("cache_write", self._ref(block), 0, text(scope), results=[self._name(copy)])
        self.written = f"{self.written}_{text(scope)}"
        self.rank_of[copy] = len(self.block.result.shape)  # a copy of the sums themselves

    def _do_transform_layout(self, copy: Value, _layout: Value) -> None:
        parts = tuple(self._layout_part(part) for part in self._layout(copy))
        index_map = IndexMap(self.rank_of[copy], parts)
        self._call("transform_layout", self._ref(copy), ("write", 0), index_map)

    def _do_split(self, what: Value, parts: Value | None = None) -> None:
        if isinstance(what, Term) and what.name == "loop":  # a loop of a copy
            copy, dim = what.arguments
            named: list[tuple[Value, Value | None]] = [("outer", None), ("inner", parts)]
            if isinstance(parts, tuple):
                named = [one if isinstance(one, tuple) else (one, None) for one in parts]  # type: ignore[misc]
            whole = Term("loop", (copy, dim)) if dim == "all" else self._copy_loop(copy, dim)
            prefix = (copy,) if dim == "all" else (copy, dim)
            results = [self._name(Term("loop", (*prefix, name))) for name, _ in named]
            factors = tuple(None if factor is None else self._number(factor) for _, factor in named)
            self._call("split", self._ref(whole), factors, results=results)
        else:
            assert parts is not None
            self._split_axis(what, parts)

    def _split_axis(self, block: Value, axis: Value) -> None:
        if not self.loops:
            self.loops = [Term("loop", (block, one)) for one in self._axes()]
            self._call("get_loops", self._ref(block), results=[self._name(loop) for loop in self.loops])
        tiles = {level for _, one, level in self.sketch.of("tile") if one == axis}
        levels = [row.name for row in self.sketch.levels if row.name in tiles and row.kind == self.kind[axis]]
        coarse = {level for _, level in self.sketch.of("coarse")}
        levels.sort(key=lambda level: level not in coarse)
        if not levels:
            raise InternalError(f"split({text(block)}, {text(axis)}): the axis has no tile")
        whole = Term("loop", (block, axis))
        parts = [Term("loop", (block, axis, level)) for level in levels]
        if len(parts) > 1:
            factors = tuple(self._number(Term("tile", (block, axis, level))) for level in levels)
            self._call("split", self._ref(whole), factors, results=[self._name(part) for part in parts])
        else:
            self.names[parts[0]] = self.names[whole]
        at = self.loops.index(whole)
        self.loops[at : at + 1] = parts

    def _do_reorder(self, what: Value, layout: Value | None = None) -> None:
        if isinstance(layout, tuple):  # loops of a copy, in this order
            self._call("reorder", *(self._ref(self._resolved(loop)) for loop in layout))
            return
        if layout is not None:  # the loops of a copy, in the order of its layout
            self._call("reorder", *(self._ref(self._layout_loop(what, part)) for part in self._layout(what)))
            return
        ordered: list[Term] = []
        for row in self.sketch.levels:
            loops = [loop for loop in self._at(row.name) if self.kind[loop.arguments[1]] == row.kind]
            inner = self.values.get(Term("inner", (what, row.name)))
            loops.sort(key=lambda loop, inner=inner: loop.arguments[1] == inner)  # type: ignore[misc]
            ordered += sorted(loops, key=self._unit_place) if row.name == "unit" else loops
        self.loops = ordered
        self._call("reorder", *(self._ref(loop) for loop in ordered))

    def _do_fuse(self, block: Value, level: Value | None = None) -> None:
        if level is None:  # all loops of a copy
            self._fuse_copy(block)
            return
        loops = self._at(level)
        fused = Term("loop", (block, "fused", level))
        if len(loops) == 1:
            self.names[fused] = self.names[loops[0]]
        else:
            self._call("fuse", *(self._ref(loop) for loop in loops), results=[self._name(fused)])
        at = self.loops.index(loops[0])
        self.loops[at : at + len(loops)] = [fused]

    def _fuse_copy(self, whole: Value) -> None:
        assert isinstance(whole, Term)
        copy = whole.arguments[0]
        self._copy_loop(copy, 0)
        loops = [self._ref(Term("loop", (copy, dim))) for dim in range(self.rank_of[copy])]
        if len(loops) == 1:
            self.names[whole] = loops[0].name
        else:
            self._call("fuse", *loops, results=[self._name(whole)])

    def _do_bind(self, loop: Value, thread: Value) -> None:
        self._call("bind", self._ref(self._resolved(loop)), text(thread))

    def _do_storage_align(self, copy: Value, row: Value, padding: Value) -> None:
        apart = self._number(row) + self._number(padding)
        self._call("storage_align", self._ref(copy), 0, -2, _ALIGNED, apart % _ALIGNED)

    def _do_compute_at(self, copy: Value, position: Value) -> None:
        self._attach("compute_at", copy, position)

    def _do_reverse_compute_at(self, copy: Value, position: Value) -> None:
        self._attach("reverse_compute_at", copy, position)

    def _attach(self, primitive: str, copy: Value, position: Value) -> None:
        inside = self._at(self.values[position])
        if not inside:
            raise InternalError(f"{primitive}({text(copy)}): there is no loop at level {text(self.values[position])}")
        self._call(primitive, self._ref(copy), self._ref(inside[-1]), options=[("preserve_unit_loops", True)])

    def _do_parallel(self, loop: Value) -> None:
        self._call("parallel", self._ref(self._resolved(loop)))

    def _do_vectorize(self, loop: Value) -> None:
        self._call("vectorize", self._ref(self._resolved(loop)))

    def _do_unroll(self, loop: Value) -> None:
        self._call("unroll", self._ref(self._resolved(loop)))

    def _do_annotate(self, what: Value, key: Value, value: Value) -> None:
        argument: Argument
        if isinstance(value, tuple):
            argument = tuple(self._number(one) for one in value)
        else:
            argument = Source(text(value.arguments[0])) if isinstance(value, Term) else plain(value)
        self._call("annotate", self._ref(self._resolved(what)), text(key), argument)

    def _do_decompose_reduction(self, block: Value, level: Value) -> None:
        at = self.loops.index(self._at(level)[0])
        init = Term("init", (block,))
        self._call("decompose_reduction", self._ref(block), self._ref(self.loops[at]), results=[self._name(init)])
        inner = [loop for loop in self.loops[at:] if self.kind[loop.arguments[1]] == "spatial"]
        names = [self._name(Term("loop", (init, *loop.arguments[1:]))) for loop in inner]
        if names:
            self._call("get_loops", self._ref(init), results=names, take=len(names))

    def _do_tensorize(self, block: Value, intrinsic: Value, seating: Value | None = None) -> None:
        if seating is None:
            self._tensorize_part(block, intrinsic)
            return
        unit = self._at("unit")[0]
        stored = [tensor.dtype for tensor in self.block.operands] if self.form.shifts else []
        stored = stored if text(seating) == "straight" else stored[::-1]
        self._call("tensorize", self._ref(unit), IntrinsicName(text(intrinsic), text(seating), tuple(stored)))

    def _tensorize_part(self, loop: Value, part: Value) -> None:
        """A step with fragments; what writes the result is another block afterwards, and so gets another name."""
        assert isinstance(loop, Term)
        assert isinstance(part, Term)
        name, what, turned, memory = (text(argument) for argument in part.arguments)
        call = FragmentCall(name, what, *("" if one == "none" else one for one in (turned, memory)))
        self._call("tensorize", self._ref(self._resolved(loop)), call)
        if what == "store":
            self._call("get_sblock", f"{self.written}_o", results=[self._name(loop.arguments[0])])

    def _do_start_with(self, block: Value, start: Term) -> None:
        other = text(start.arguments[0])
        spatial = [name for name in self._axes() if self.kind[name] == "spatial"]
        places = tuple(at for at, name in enumerate(spatial) if name in self.block.indexes(other))
        self.last.append(Call("start_with", (text(block), Start(f"{other}_start", places))))

    def _do_skip_zeros(self, loop: Term, tensor: Value, dim: Value) -> None:
        operand = self.block.operands[self.slot[text(tensor)]]
        at = self._number(dim)
        rows = self.block.border(operand, at)
        if rows is None:
            raise InternalError(f"skip_zeros({text(loop)}, {text(tensor)}, {at}): the operand has no padding there")
        places = self._axes()
        terms = self.block.of(operand.name, at)
        steps = {term.axis: self._steps_at_once(loop.arguments[0], term.axis) for term in terms}
        strides = tuple((places.index(term.axis), term.stride * steps[term.axis]) for term in terms)
        span = 1 + sum(term.stride * (steps[term.axis] - 1) for term in terms)
        self.skips.append(Skip(self._ref(loop), Window(strides, operand.start(at), *rows, span)))

    def _steps_at_once(self, block: Value, axis: str) -> int:
        """How many steps of an axis the block takes at once: those of an instruction that it became."""
        return self._number(self.values.get(Term("tile", (block, axis, "unit")), 1)) if self.sketch.tensorized else 1

    # -- names -----------------------------------------------------------------------------------------------------

    def _call(
        self,
        primitive: str,
        *arguments: Argument,
        results: Sequence[str] = (),
        options: Sequence[tuple[str, Argument]] = (),
        take: int = 0,
    ) -> None:
        self.calls.append(Call(primitive, tuple(arguments), tuple(results), tuple(options), take))

    def _name(self, thing: Value) -> str:
        """A Python variable for a block or loop: `pack_b`, `m_register`, `init_n_unit`."""
        if thing in self.names:
            return self.names[thing]
        words = _words(thing)
        if isinstance(thing, Term) and thing.name == "loop":
            owner, *rest = thing.arguments
            short = {self.block.block: [], Term("init", (self.block.block,)): ["init"]}  # the block goes without saying
            words = [*short.get(owner, _words(owner)), *(word for one in rest for word in _words(one))]
        name = "_".join(words) if isinstance(thing, Term) else f"{'_'.join(words)}_block"
        taken = set(self.names.values())
        unique = name if name not in taken else next(f"{name}_{i}" for i in range(2, 99) if f"{name}_{i}" not in taken)
        self.names[thing] = unique
        return unique

    def _ref(self, thing: Value) -> Ref:
        if thing not in self.names:
            raise InternalError(f"there is no block or loop {text(thing)}")
        return Ref(self.names[thing])

    def _resolved(self, thing: Value) -> Value:
        """A loop of a copy is named when it is first asked for."""
        if isinstance(thing, Term) and thing.name == "loop" and len(thing.arguments) == 2 and thing not in self.names:
            return self._copy_loop(*thing.arguments)
        return thing

    def _copy_loop(self, copy: Value, dim: Value) -> Value:
        """The loop of a dimension of a copy; asks for all of the copy's loops once."""
        loop = Term("loop", (copy, dim))
        if loop not in self.names:
            rank = self.rank_of[copy]
            names = [self._name(Term("loop", (copy, one))) for one in range(rank)]
            self._call("get_loops", self._ref(copy), results=names, take=rank)
        return loop

    # -- facts -----------------------------------------------------------------------------------------------------

    def _axes(self) -> list[str]:
        return self.block.order(self.form.innermost)

    def _at(self, level: Value) -> list[Term]:
        """The loops of a level, outermost first."""
        return [loop for loop in self.loops if len(loop.arguments) == 3 and loop.arguments[2] == level]

    def _unit_place(self, loop: Term) -> int:
        """Where an intrinsic has the loop's role: the roles of its result in their order, then what it sums over."""
        roles = {role for _, role, axis in self.sketch.of("maps") if axis == loop.arguments[1]}
        for intrinsic, slot, position, role, _ in self.sketch.of("intrinsic_index"):
            if intrinsic in self.sketch.intrinsics and slot == "result" and role in roles:
                return self._number(position)
        return len(self.loops)

    def _layout(self, copy: Value) -> list[Term]:
        """The parts of a layout; atoms come in clingo's order, so their positions are in order."""
        return [part for one, _, part in self.sketch.of("layout") if one == copy and isinstance(part, Term)]

    def _layout_part(self, part: Term) -> tuple[int, str, int]:
        dim, unit = (self._number(argument) for argument in part.arguments)
        return dim, "//" if part.name == "quotient" else "%", unit

    def _layout_loop(self, copy: Value, part: Term) -> Value:
        which = "outer" if part.name == "quotient" else "inner"
        loop = Term("loop", (copy, part.arguments[0], which))
        return loop if loop in self.names else self._copy_loop(copy, part.arguments[0])

    def _number(self, value: Value | None) -> int:
        """A number, or the value of a variable."""
        found = value if isinstance(value, int) or value is None else self.values[value]
        if not isinstance(found, int):
            raise InternalError(f"{text(value) if value is not None else 'nothing'} is not a number")
        return found


def _words(value: Value) -> list[str]:
    if isinstance(value, Term):
        return [value.name, *(word for argument in value.arguments for word in _words(argument))]
    if isinstance(value, tuple):
        return [word for argument in value for word in _words(argument)]
    return [str(value)]
