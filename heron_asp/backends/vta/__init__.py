"""VTA: instructions and micro-ops, a functional simulator, a cycle model, a checker, and a driver for real libraries.

    configuration   numbers of a device; field widths follow from them           config
    instructions    typed values, their 128-bit words and back                   isa, encode
    steps           the micro-op loops of an instruction as index arrays         uops
    tokens          how the three stages wait for one another                    tokens
    memory, counters  what a program does                                        functional
    cycles          how long it takes                                            channel, cycles
    violations      what no device should be given                               checker, hazards
    driver          a user's fsim, tsim or board library                         driver, device
    program         a candidate's loop nest made into instructions               lowering
    pipeline        a target's numbers, candidates measured, shown, exported     machine, measure, listing, backend
    completeness    every assignment, unconstrained, against the space           completeness
    exported C      programs for a user's own library, without Python            library

`python -m heron_asp.backends.vta FILE.jsonl.gz --json` runs recorded programs, `--encodings FILE.json` checks words.
The words, limits and costs are those of apache/tvm-vta (hw_spec.h, the functional simulator and the Chisel RTL).
"""

from heron_asp.backends.vta.backend import BACKEND
from heron_asp.backends.vta.checker import check, require_valid
from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.cycles import count_cycles
from heron_asp.backends.vta.encode import decode_instruction, encode_instruction
from heron_asp.backends.vta.functional import Counters, simulate

__all__ = [
    "BACKEND",
    "Configuration",
    "Counters",
    "check",
    "count_cycles",
    "decode_instruction",
    "encode_instruction",
    "require_valid",
    "simulate",
]
