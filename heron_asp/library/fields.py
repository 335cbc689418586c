"""The shape keys of an operator family as C functions take them.

A key that is only there to give others their default, such as `stride` for `stride_h` and `stride_w`, is no field: each
shape has one way to be said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heron_asp.library.words import distinct
from heron_asp.operators import OperatorKind


@dataclass(frozen=True)
class Field:
    """A shape key, as C functions take it.

    Attributes:
        key: the key.
        name: the parameter or the field of the struct.
        least: the smallest value.
        default: the value that 0 stands for, or the field whose value it is; None where 0 stands for itself.
    """

    key: str
    name: str
    least: int
    default: int | Field | None

    def value(self, access: str) -> str:
        """The value as a C expression; `access` stands before the name."""
        if self.default is None:
            return access + self.name
        default = self.default.value(access) if isinstance(self.default, Field) else str(self.default)
        return f"heron_or({access}{self.name}, {default})"

    def complete(self, values: Mapping[str, int]) -> int:
        """The value where some keys are given, as C completes it."""
        given = values.get(self.key, 0)
        if given or self.default is None:
            return given
        return self.default.complete(values) if isinstance(self.default, Field) else self.default

    def may_be_left_out(self, values: Mapping[str, int]) -> bool:
        """Whether 0, which fields have that are not given, means the value that these have."""
        rest = {key: value for key, value in values.items() if key != self.key}
        return self.complete(rest) == values[self.key]

    def means(self, value: int) -> bool:
        """Whether 0 means a value, whatever other fields are."""
        return value == (0 if self.default is None else self.default)

    @property
    def comment(self) -> str:
        """What the header says of it; empty where there is nothing to say."""
        if self.default is not None:
            return f"0 stands for {self.default.name if isinstance(self.default, Field) else self.default}"
        return "" if self.least == 1 else f"{self.least} or more"


def fields_of(kind: OperatorKind) -> tuple[Field, ...]:
    """The fields of a family, in the order of its keys."""
    defaults = kind.defaults
    shorthands = {default for default in defaults.values() if default in defaults}
    names = distinct(key for key in kind.every_key if key not in shorthands)
    made: dict[str, Field] = {}
    for key, name in names.items():
        least, default = kind.least.get(key, 1), defaults.get(key)
        while default in shorthands:
            default = defaults[str(default)]
        zero_is_free = key in defaults and least > 0
        stands_for = made[default] if isinstance(default, str) else default
        made[key] = Field(key, name, least, stands_for if zero_is_free else None)
    return tuple(made.values())
