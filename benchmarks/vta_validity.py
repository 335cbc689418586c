"""Are all programs of VTA's spaces right? Uniform samples of many operators, checked and simulated on data.

    python benchmarks/vta_validity.py                    15 operators on three devices, 12 samples of each: 540 programs
    python benchmarks/vta_validity.py --samples 40 -t vta-pynq

Each sample has to be made, to fit every memory, to pass the checker (tokens, hazards, fields, what the public models of
VTA disagree about), and to compute what numpy does on random, extreme and single-row inputs. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import numpy as np

from heron_asp import Task, operator, resolve_target
from heron_asp.backends.vta.checker import check
from heron_asp.backends.vta.functional import simulate
from heron_asp.backends.vta.measure import VtaDevice
from heron_asp.errors import HeronError, InternalError
from heron_asp.measure.data import Case, cases
from heron_asp.operators import parse_shape
from heron_asp.space import Candidate

OPERATORS = (  # kind, shape, layout, epilogue before the usual one
    ("gemm", "m=64,n=64,k=64", None, ""),
    ("gemm", "m=9,n=20,k=10", None, "bias,"),
    ("gemm", "m=1,n=100,k=33", None, "bias,"),
    ("batch_matmul", "batch=3,m=9,n=20,k=17", None, ""),
    ("gemv", "m=90,k=100", None, "bias,"),
    ("scan", "m=12,n=40,k=40", None, ""),
    ("conv1d", "n=2,w=19,ci=5,co=6,kw=3,padding=1", "channels-first", "bias,"),
    ("conv2d", "n=1,h=14,w=11,ci=35,co=36,kh=3,kw=3,padding=1", None, "bias,"),
    ("conv2d", "n=2,h=9,w=9,ci=5,co=6,kh=3,kw=3,padding=1,stride=2", "channels-first", ""),
    ("conv2d", "n=1,h=7,w=7,ci=35,co=17,kh=3,kw=3,padding=2,dilation=2", None, "add,bias,"),
    ("conv2d", "n=1,h=3,w=4,ci=20,co=20,kh=5,kw=5,padding=2", None, ""),
    ("conv2d", "n=1,h=15,w=15,ci=16,co=48,kh=1,kw=1,stride=3", None, "bias,"),
    ("conv2d_transposed", "n=1,h=4,w=4,ci=5,co=6,kh=3,kw=3,padding=1,stride=2", None, "bias,"),
    ("conv2d_transposed", "n=1,h=3,w=5,ci=18,co=20,kh=4,kw=2,padding=1", "channels-first", ""),
    ("conv2d_dilated", "n=1,h=9,w=9,ci=16,co=16,kh=3,kw=3,padding=2,dilation=2", None, ""),
)
TARGETS = ("vta-pynq", "vta-ultra96", "vta-32")


def tried(device: VtaDevice, candidate: Candidate, every: list[Case]) -> str:
    """What is wrong with a program; empty if nothing is."""
    try:
        lowered = device.lowered(candidate)
    except (HeronError, InternalError) as error:
        return f"lowering: {error}"
    config = device.numbers.config
    for case in every:
        memory = lowered.image(case.inputs)
        if found := check(lowered.instructions, config, memory):
            return f"checker: {found[0].message}"
        simulate(lowered.instructions, memory, config)
        if wrong := case.error(lowered.result(memory).reshape(case.expected.shape)):
            return f"result: {wrong}"
    return ""


def main() -> None:
    """Samples, tries, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", action="append")
    parser.add_argument("--samples", type=int, default=12, help="of each operator and device")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    for target in map(resolve_target, arguments.target or TARGETS):
        usual = target.shared.defaults
        for kind, shape, layout, before in OPERATORS:
            begin = time.monotonic()
            made = operator(kind, parse_shape(shape), usual.dtype, layout, before + usual.epilogue)
            task = Task(made, target)
            device, every = VtaDevice(task), cases(made)
            sampled = task.space.sample(arguments.samples, np.random.default_rng(arguments.seed), {})
            errors = [error for one in sampled if (error := tried(device, one, every))]
            counts["correct"] += len(sampled) - len(errors)
            counts["wrong"] += len(errors)
            said = f"{len(sampled) - len(errors)} of {len(sampled)} correct, {time.monotonic() - begin:.0f} s"
            print(f"{target.name:<12}{kind:<18}{shape:<62}{task.space.size:>12,} programs, {said}", flush=True)
            for error in errors[:3]:
                print(f"  FAILURE: {error}")
    print(f"{counts['correct']} of {sum(counts.values())} programs are correct")
    sys.exit(1 if counts["wrong"] else 0)


if __name__ == "__main__":
    main()
