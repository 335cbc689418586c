"""Makes of CUDA C++ what a C++ compiler of the host takes. Lines keep their numbers, so that messages can name them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from heron_asp.backends.cuda.emulator.error import UnsupportedError
from heron_asp.backends.cuda.emulator.ptx import translate as translate_assembly
from heron_asp.backends.cuda.emulator.tokens import Token, closing, split, string_value, text_of, tokens_of

_HEADERS = {
    "cuda.h",
    "cuda_runtime.h",
    "cuda_fp16.h",
    "cuda_bf16.h",
    "mma.h",
    "sm_61_intrinsics.h",
    "cstdint",
    "type_traits",
    "cuda/std/cstdint",
    "cuda/std/type_traits",
}
_QUALIFIERS = {"__align__", "alignas"}


@dataclass(frozen=True)
class Translation:
    """What is compiled.

    Attributes:
        code: C++ that begins with the lines of the source.
        parameters: of each kernel, by its name: how many pointers it takes.
        most_threads: that `__launch_bounds__` allows a block of each kernel; absent where it says nothing.
    """

    code: str
    parameters: dict[str, int]
    most_threads: dict[str, int]


def translate(source: str) -> Translation:
    """Translates the source of a program.

    Raises:
        UnsupportedError: it has something that the emulator does not know.
    """
    translator = _Translator(source)
    translator.run()
    return Translation(translator.code(), translator.parameters, translator.most_threads)


class _Translator:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = tokens_of(source)
        self.edits: list[tuple[int, int, str]] = []
        self.parameters: dict[str, int] = {}
        self.most_threads: dict[str, int] = {}
        self.calls: list[str] = []
        self.arrays = 0

    def run(self) -> None:
        index = 0
        while index < len(self.tokens):
            token = self.tokens[index]
            if token.kind == "directive":
                self._directive(token)
            elif token.kind == "word" and token.text in ("asm", "__asm__"):
                index = self._assembly(index)
            elif token.kind == "word" and token.text == "__shared__":
                index = self._shared(index)
            elif token.kind == "word" and token.text == "__global__":
                index = self._kernel(index)
            index += 1

    def code(self) -> str:
        pieces, position = [], 0
        for start, end, text in sorted(self.edits):
            lines = self.source.count("\n", start, end) - text.count("\n")
            pieces += [self.source[position:start], text, "\n" * lines]
            position = end
        pieces.append(self.source[position:])
        table = ", ".join(f'{{"{name}", heron_call_{name}}}' for name in self.parameters)
        pieces += ["\n", *self.calls, f"const heron::Kernel heron::kernels[] = {{{table}}};\n"]
        pieces.append(f"const int heron::kernel_count = {len(self.parameters)};\n")
        return "".join(pieces)

    def _where(self, token: Token) -> str:
        return f"line {self.source.count(chr(10), 0, token.start) + 1} of the CUDA source"

    def _unknown(self, token: Token, what: str) -> UnsupportedError:
        return UnsupportedError(f"{self._where(token)}: {what}")

    def _directive(self, token: Token) -> None:
        match = re.match(r'#\s*include\s*[<"]([^>"]*)[>"]', token.text)
        if match is None:
            return
        if match[1] not in _HEADERS:
            raise self._unknown(token, f"the emulator has no header `{match[1]}`")
        self.edits.append((token.start, token.end, ""))

    def _assembly(self, index: int) -> int:
        """From `asm` to its closing parenthesis, whose index is returned."""
        first, opening = self.tokens[index], index + 1
        while self.tokens[opening].text in ("volatile", "__volatile__"):
            opening += 1
        end = closing(self.tokens, opening)
        if self.tokens[opening].text != "(" or end == len(self.tokens):
            raise self._unknown(first, "an asm statement that is not closed")
        sections = split(self.tokens[opening + 1 : end], ":")
        template = "".join(string_value(token) for token in sections[0] if token.kind == "string")
        expressions = [
            self._operand(first, operand) for section in sections[1:3] for operand in split(section, ",") if operand
        ]
        code = translate_assembly(template, expressions, self._where(first))
        self.edits.append((first.start, self.tokens[end].end, code))
        return end

    def _operand(self, first: Token, tokens: Sequence[Token]) -> str:
        """The expression of `"=r"(expression)`."""
        if len(tokens) < 3 or tokens[0].kind != "string" or tokens[1].text != "(" or "+" in tokens[0].text:
            raise self._unknown(first, f"an operand of asm: {text_of(self.source, tokens)}")
        return text_of(self.source, tokens[2:-1]).replace("\n", " ")

    def _shared(self, index: int) -> int:
        """A declaration of shared memory; the index of its semicolon is returned."""
        first = self.tokens[index]
        dynamic = index > 0 and self.tokens[index - 1].text == "extern"
        end = index
        while end < len(self.tokens) and self.tokens[end].text != ";":
            end += 1
        words = self._without_alignment(self.tokens[index + 1 : end])
        marks = [token.text for token in words]
        opening = marks.index("[") if "[" in marks else 0
        if opening < 2 or marks.count("[") != 1 or marks[-1] != "]" or dynamic != (opening == len(marks) - 2):
            raise self._unknown(first, f"shared memory other than an array: {text_of(self.source, words)}")
        kind, name = text_of(self.source, words[: opening - 1]), marks[opening - 1]
        if dynamic:
            code, start = f"{kind}* {name} = ({kind}*)heron::dynamic_shared();", self.tokens[index - 1].start
        else:
            size = text_of(self.source, words[opening + 1 : -1])
            call = f"heron::static_shared({self.arrays}, sizeof({kind}) * (size_t)({size}))"
            code, start = f"{kind}* {name} = ({kind}*){call};", first.start
            self.arrays += 1
        self.edits.append((start, self.tokens[end].end, code))
        return end

    def _without_alignment(self, tokens: Sequence[Token]) -> list[Token]:
        kept, index = [], 0
        while index < len(tokens):
            if tokens[index].text in _QUALIFIERS:
                index = closing(tokens, index + 1)
            else:
                kept.append(tokens[index])
            index += 1
        return kept

    def _kernel(self, index: int) -> int:
        """A kernel's head; the index of the parenthesis that closes it is returned."""
        first = self.tokens[index]
        most = 0
        while self.tokens[index + 1].text != "(":
            index += 1
            if self.tokens[index].text == "__launch_bounds__":
                end = closing(self.tokens, index + 1)
                most = int(split(self.tokens[index + 2 : end], ",")[0][0].text)
                index = end
        name, end = self.tokens[index].text, closing(self.tokens, index + 1)
        parameters = [one for one in split(self.tokens[index + 2 : end], ",") if one]
        if end + 1 >= len(self.tokens) or self.tokens[end + 1].text != "{":
            return end  # a declaration
        casts = []
        for number, parameter in enumerate(parameters):
            if "*" not in [token.text for token in parameter]:
                raise self._unknown(first, f"the kernel {name} takes a value: {text_of(self.source, parameter)}")
            kind = " ".join(token.text for token in parameter[:-1] if token.text != "__restrict__")
            casts.append(f"({kind})arguments[{number}]")
        self.calls.append(f"static void heron_call_{name}(void** arguments) {{ {name}({', '.join(casts)}); }}\n")
        self.parameters[name] = len(parameters)
        if most:
            self.most_threads[name] = most
        return end
