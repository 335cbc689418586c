"""Elements as bytes and as numbers, inputs that are drawn, the comparison of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .options import Json


def drawn(seed: int, count: int, low: int, high: int) -> np.ndarray[Any, Any]:
    """Whole numbers from `low` to `high`, for a seed the same on all machines: splitmix64 (Steele, OOPSLA 2014)."""
    state = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed * 0xD1342543DE82EF95 % 2**64)
    state *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    span = np.uint64(high - low + 1)
    return low + ((state >> np.uint64(33)) % span).astype(np.int64)


def element(storage: str) -> np.dtype[Any]:
    """The numpy type that has the bytes of an element; numpy itself knows no bfloat16."""
    return np.dtype("uint16" if storage == "bfloat16" else storage)


def stored(values: np.ndarray[Any, Any], storage: str) -> np.ndarray[Any, Any]:
    """Numbers as elements of a type; bfloat16 is the upper half of float32, to the nearest, ties to even."""
    if storage != "bfloat16":
        return values.astype(storage)
    bits = values.astype(np.float32).view(np.uint32)
    halved: np.ndarray[Any, Any] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return halved


def numbers(elements: np.ndarray[Any, Any], storage: str) -> np.ndarray[Any, Any]:
    """Elements as numbers that numpy calculates with."""
    return (elements.astype(np.uint32) << 16).view(np.float32) if storage == "bfloat16" else elements


def compare(result: np.ndarray[Any, Any], expected: Json, folder: Path) -> tuple[str, float]:
    """What is wrong with a result, empty if nothing is; and its largest error as a share of what is allowed."""
    places = np.load(folder / expected["places"]) if expected["places"] else None
    values, allowed = np.load(folder / expected["file"]).reshape(-1), expected["tolerance"]
    compared = result if places is None else result[places]
    worst = 0.0
    if allowed is None:
        bad = compared != values
    else:
        allowed = np.load(folder / allowed).reshape(-1) if isinstance(allowed, str) else allowed
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            error = np.abs(compared.astype(np.float64) - values)
            bad = ~(error <= allowed)
            worst = float(np.max(np.where(error > 0, error / allowed, 0.0), initial=0.0))
    if not bad.any():
        return "", worst
    at = int(bad.argmax())
    place = at if places is None else int(places[at])
    said = f"{int(bad.sum())} of {bad.size} elements are wrong, the first is {compared[at]} instead of {values[at]}"
    return f"{said}, at {place}", worst
