"""Names in generated C and Python: of the keys and tensors of any operator, and none of them a word of a language."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

_C = """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof
    NULL EOF errno linux unix i386
"""
_CPP = """
    alignas alignof and and_eq bitand bitor bool catch char8_t char16_t char32_t class co_await co_return co_yield
    compl concept consteval constexpr constinit const_cast decltype delete dynamic_cast explicit export false friend
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast
    requires static_assert static_cast template this thread_local throw true try typeid typename using virtual wchar_t
    xor xor_eq
"""
# What the templates call and declare where the names of an operator are in scope.
_TEMPLATES = """
    shape wanted least kernel row threads
    allocate succeed small near samples total wrong i free printf size_t int8_t int16_t int32_t uint8_t uint16_t
    np ctypes library aligned pointer leading right verdict print bool zip all range abs
"""
RESERVED = frozenset((*_C.split(), *_CPP.split(), *_TEMPLATES.split(), *keyword.kwlist))


def identifier(name: str) -> str:
    """A name with `_` for all that no identifier has, but `clip=-1:2.5` as `clip_m1_2p5`."""
    plain = re.sub(r"-(?=\d)", "m", name)
    plain = re.sub(r"(?<=\d)\.(?=\d)", "p", plain)
    plain = re.sub(r"\W", "_", plain, flags=re.ASCII)
    return plain if plain[:1].isalpha() else f"v{plain}"


def distinct(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """An identifier for each name: the name itself where it is free; otherwise underscores follow.

    Args:
        names: all different.
        taken: identifiers that the same scope has already.
    """
    used, found = {*RESERVED, *taken}, {}
    for name in names:
        word = identifier(name)
        while word in used:
            word += "_"
        used.add(word)
        found[name] = word
    return found
