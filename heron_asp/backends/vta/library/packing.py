"""C functions that bring tensors into VTA's layout, padded and permuted, and results out of it to their places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from heron_asp.backends.vta.library.kernel import Copy, Kernel, Tensor
from heron_asp.tir import loads
from heron_asp.tir_c import bare, expression, flat

Range = tuple[str, int, int]  # variable, from, up to


def packing(kernel: Kernel, tensor: Tensor, copy: Copy) -> str:
    """A function that writes the entries of a copy, one after the other, from the argument."""
    entries, region = copy.region.entries, copy.region
    ranges: list[Range] = [(f"d{at}", low, high) for at, (low, high) in enumerate(region.held)]
    ranges += [(f"e{at}", 0, extent) for at, (_, extent) in enumerate(entries.inside)]
    outer = {dim.source: (at, dim.unit) for at, dim in enumerate(entries.dims)}
    inner = {source: at for at, (source, _) in enumerate(entries.inside) if source >= 0}
    indices, bounds = [], []
    for source, extent in enumerate(copy.shape):
        low, high = entries.fixed.get(source, 0), entries.fixed.get(source, 0) + 1
        text = str(low)
        if source in outer:
            at, unit = outer[source]
            low, high = region.held[at][0] * unit, region.held[at][1] * unit
            text = _times(_variable(ranges[at]), unit)
        if source in inner:
            text = _sum(text, _variable(ranges[len(outer) + inner[source]]))
        indices.append(text)
        name = text if re.fullmatch(r"\w+", text) else f"i{source}"
        bounds += [f"{name} >= 0"] if low < 0 else []
        bounds += [f"{name} < {extent}"] if high > extent else []
    names, declared = _named("i", indices)

    def load(_: str, at: Sequence[str]) -> str:
        return f"{tensor.variable}[{flat(at, tensor.view)}]"

    if copy.stage is None:
        value = f"{tensor.variable}[{flat(names, copy.shape)}]"
    else:
        value = bare(expression(copy.stage.value, dict(zip(copy.stage.variables, names, strict=True)), load))
    if bounds:
        value = f"{' && '.join(bounds)} ? {value if copy.stage is None else f'({value})'} : 0"
    head = f"static void {kernel.local}_{copy.name}({tensor.parameter}, {entries.dtype}_t *to)"
    return _function(head, ranges, declared, f"*to++ = {value};")


def unpacking(kernel: Kernel) -> str:
    """A function that writes the result, element by element, from the entries that the device has stored."""
    block, tensor = kernel.lowered.problem.block, kernel.result
    (copy,) = tensor.copies
    entries, region, finish = copy.region.entries, copy.region, block.finish
    shape = finish.parameter.shape if finish else block.result.shape
    ranges: list[Range] = [(f"o{at}", 0, extent) for at, extent in enumerate(shape)]
    places = [_variable(one) for one in ranges]
    if finish is not None:
        variables = dict(zip(finish.stage.variables, places, strict=True))
        source = next(one for one in loads(finish.stage.value) if str(one.source.name) == finish.source)
        places = [bare(expression(index, variables, _no_load)) for index in source.indices]
    names, declared = _named("j", places)
    at = []
    for dim, (low, _) in zip(entries.dims, region.held, strict=True):
        name = names[dim.source]
        at.append(_sum(name if dim.unit == 1 else f"{name} / {dim.unit}", str(-low)))
    units = {dim.source: dim.unit for dim in entries.dims}
    at += [f"{names[source]} % {units[source]}" if source >= 0 else "0" for source, _ in entries.inside]
    head = f"static void {kernel.local}_{copy.name}(const {entries.dtype}_t *from, {tensor.parameter})"
    value = f"from[{flat([f'({one})' if ' ' in one else one for one in at], region.shape)}]"
    return _function(head, ranges, declared, f"*{tensor.variable}++ = {value};")


def _no_load(name: str, _: Sequence[str]) -> str:
    raise AssertionError(f"an index that is loaded from {name}")


def _function(head: str, ranges: Iterable[Range], declared: Sequence[str], statement: str) -> str:
    """A function of nested loops around a statement; what it does not use is not declared."""
    used = [line for line in declared if re.search(rf"\b{line.split()[2]}\b", statement)]
    return "\n".join([head, "{", *nested(ranges, [*used, statement]), "}"])


def nested(ranges: Iterable[Range], statements: Sequence[str], always: bool = False) -> list[str]:
    """Lines of loops around statements.

    A variable with one value has no loop, as `_variable` has it, except `always`.
    """
    lines, indent = [], "    "
    for name, low, high in ranges:
        if always or high - low != 1:
            lines.append(f"{indent}for (int32_t {name} = {low}; {name} < {high}; {name}++)")
            indent += "    "
    if lines and len(statements) > 1:
        lines[-1] += " {"
        return [*lines, *(indent + line for line in statements), f"{indent[4:]}}}"]
    return [*lines, *(indent + line for line in statements)]


def _variable(one: Range) -> str:
    """A loop's variable in C; the value itself where it has only one."""
    name, low, high = one
    return name if high - low != 1 else str(low) if low >= 0 else f"({low})"


def _named(letter: str, texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of expressions, and the declarations of those that are no words."""
    names, declared = [], []
    for at, text in enumerate(texts):
        word = re.fullmatch(r"\w+", text) is not None
        names.append(text if word else f"{letter}{at}")
        declared += [] if word else [f"const int32_t {letter}{at} = {text};"]
    return names, declared


def _times(text: str, number: int) -> str:
    if text == "0" or number == 1:
        return text
    return f"{text} * {number}"


def _sum(first: str, second: str) -> str:
    parts = [part for part in (first, second) if part != "0"]
    return " + ".join(parts) or "0"
