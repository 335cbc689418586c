"""Tokens of CUDA C++: enough to find declarations, statements of inline assembly and the parentheses that close."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PATTERN = re.compile(
    r"""
      (?P<space>\s+ | //[^\n]* | /\*.*?\*/)
    | (?P<directive>\#(?:[^\n\\]|\\.)*)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<character>'(?:[^'\\]|\\.)*')
    | (?P<word>[A-Za-z_]\w*)
    | (?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
    | (?P<mark>::|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the source.

    Attributes:
        kind: `directive`, `string`, `character`, `word`, `number` or `mark`.
        text: as it stands in the source.
        start: where, in characters.
    """

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """Where the next character stands."""
        return self.start + len(self.text)


def tokens_of(source: str) -> list[Token]:
    """All tokens but blanks and comments."""
    found = []
    position = 0
    while position < len(source):
        match = _PATTERN.match(source, position)
        assert match is not None  # the last branch takes any character
        if match.lastgroup != "space":
            assert match.lastgroup is not None
            found.append(Token(match.lastgroup, match.group(), match.start()))
        position = match.end()
    return found


def closing(tokens: Sequence[Token], opening: int) -> int:
    """The index of the bracket that closes the one at an index, `len(tokens)` if none does."""
    depth = 0
    for index in range(opening, len(tokens)):
        text = tokens[index].text
        if tokens[index].kind != "mark":
            continue
        depth += (text in _OPENS) - (text in _OPENS.values())
        if depth == 0:
            return index
    return len(tokens)


def split(tokens: Sequence[Token], marks: str) -> list[list[Token]]:
    """The runs of tokens between marks outside of all brackets. `::` counts as two of `:`."""
    runs: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.kind == "mark":
            depth += (token.text in _OPENS) - (token.text in _OPENS.values())
            if depth == 0 and token.text and token.text[0] in marks:
                runs.extend([] for _ in token.text)
                continue
        runs[-1].append(token)
    return runs


def text_of(source: str, tokens: Sequence[Token]) -> str:
    """What stands from the first token to the last."""
    return source[tokens[0].start : tokens[-1].end] if tokens else ""


def string_value(token: Token) -> str:
    """The characters of a string literal; of escapes only those of blanks, quotes and backslashes occur in assembly."""
    escapes = {"n": "\n", "t": "\t"}
    return re.sub(r"\\(.)", lambda match: escapes.get(match[1], match[1]), token.text[1:-1])
