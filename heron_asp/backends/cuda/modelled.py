"""What the analytic model is told: a GPU from its target file, a program from the values that the rules chose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from heron_asp.backends.cuda.lower import shared_bytes
from heron_asp.backends.cuda.model import Gpu, Pipelining, Work
from heron_asp.dtypes import DTYPES
from heron_asp.terms import Term, Value, text

if TYPE_CHECKING:
    from heron_asp.space import Candidate
    from heron_asp.target import Target
    from heron_asp.task import Task

_GIGA = 1e9
_OF_16_BITS = 2  # bytes of the operands whose multiplications `limits.tensor_16` counts


def gpu_of(target: Target, element_bytes: int) -> Gpu:
    """A GPU, for operands of so many bytes an element."""
    limits = target.machine.limits
    return Gpu(
        multiprocessors=limits["multiprocessors"],
        clock_mhz=limits["megahertz"],
        multiply_adds=limits["tensor_16" if element_bytes == _OF_16_BITS else "tensor_8"],
        shared_bytes_per_cycle=limits["shared_bytes_a_cycle"],
        port_bytes_per_cycle=limits["port_bytes"],
        l2_bytes_per_second=limits["l2_gbytes"] * _GIGA,
        l2_bytes=limits["l2_bytes"],
        dram_bytes_per_second=limits["dram_gbytes"] * _GIGA,
        registers=limits["register_file"],
        shared_bytes=limits["shared_total"],
        shared_bytes_of_block=shared_bytes(target),
        shared_bytes_reserved=limits["shared_reserved"],
        threads=limits["resident_threads"],
        blocks=limits["resident_blocks"],
        global_cycles=limits["global_cycles"],
        shared_cycles=limits["shared_cycles"],
        tensor_cycles=limits["tensor_cycles"],
        barrier_cycles=limits["barrier_cycles"],
        launch_seconds=limits["launch_ns"] / _GIGA,
    )


def element_bytes(task: Task) -> int:
    """Of the operands, as the product has them."""
    return DTYPES[task.block.operands[0].dtype].bytes


def peak(task: Task) -> float:
    """Operations a second of all tensor cores."""
    gpu = gpu_of(task.target, element_bytes(task))
    return 2.0 * gpu.multiply_adds * gpu.multiprocessors * gpu.clock_mhz * 1e6


def work_of(task: Task, candidate: Candidate, registers: int, shared: int) -> Work:
    """A candidate as the model sees it.

    Args:
        task: whose candidate it is.
        candidate: the candidate.
        registers: of a thread.
        shared: bytes of shared memory of a block.
    """
    return _Reader(task, candidate).work(registers, shared)


class _Reader:
    """Reads extents and tiles off an assignment: the levels of the nest are told by the roles of the axes."""

    def __init__(self, task: Task, candidate: Candidate) -> None:
        self.task = task
        self.sketch = task.space[candidate.sketch].sketch
        self.values: Mapping[Value, Value] = candidate.values
        self.block = task.block.block
        roles = {text(role): axis for _, role, axis in self.sketch.of("maps")}
        intrinsic = task.target.intrinsics[self.sketch.intrinsics[0]]
        self.row, self.column = (roles[role] for role in intrinsic.result.index)
        self.summed = next(axis for axis in roles.values() if axis not in (self.row, self.column))

    def work(self, registers: int, shared: int) -> Work:
        block = self.task.block
        extents = {axis.name: self._number("extent", axis.name) for axis in block.axes}
        rows, columns, steps = (extents[text(axis)] for axis in (self.row, self.column, self.summed))
        batch = 1
        for axis in block.axes:
            if axis.name not in (self.row, self.column, self.summed):
                batch *= extents[axis.name]
        kind, ahead = self._pipelining()
        first, second = block.operands
        copies = [Term("load", (first.name,)), Term("load", (second.name,)), Term("drain", (block.result.name,))]
        turned = dict.fromkeys((text(slot) for _, slot in self.sketch.of("turns")))
        return Work(
            batch=batch,
            m=rows,
            n=columns,
            k=steps,
            block=(
                rows // self._tile(self.row, "grid"),
                columns // self._tile(self.column, "grid"),
                steps // self._tile(self.summed, "stage"),
            ),
            warp=(
                self._tile(self.row, "fragment") * self._tile(self.row, "unit"),
                self._tile(self.column, "fragment") * self._tile(self.column, "unit"),
            ),
            fragment=(
                self._tile(self.row, "unit"),
                self._tile(self.column, "unit"),
                self._tile(self.summed, "unit"),
            ),
            registers=registers,
            shared_bytes=shared,
            pipelining=kind,
            stages=self._number("buffers") if kind is Pipelining.ASYNC else 1,
            fragments_ahead=ahead,
            b_by_columns="b" in turned,
            padding=self._of("padding", copies, 0),
            vector=self._of("vector", copies, 1),
            bytes_in=DTYPES[first.dtype].bytes,
            bytes_sum=DTYPES[block.result.dtype].bytes,
            bytes_out=DTYPES[block.stored].bytes,
            through_shared=Term("vector", (copies[2],)) in self.values,
            gather=float(self._gathered(first.name)),
        )

    def _pipelining(self) -> tuple[Pipelining, bool]:
        """How tiles are fetched, and whether steps overlap, as the rules say it of the pipeline."""
        chosen = self.values[Term("pipeline", (self.block,))]
        steps = {name: overlap for name, _, overlap, *_ in self.sketch.of("pipeline")}
        if chosen not in steps:
            return Pipelining.NONE, False
        by_itself = chosen in {name for name, _ in self.sketch.of("async")}
        return Pipelining.ASYNC if by_itself else Pipelining.REGISTERS, steps[chosen] != "apart"

    def _gathered(self, operand: str) -> bool:
        """Whether an operand is no matrix in memory: more axes of the operator than dimensions walk through it."""
        from heron_asp.tir import divides

        tensor = next(one for one in self.task.block.operands if one.name == operand)
        return tensor.stage is not None and divides(tensor.stage.value)

    def _number(self, name: str, *rest: Value) -> int:
        value = self.values[Term(name, (self.block, *rest))]
        assert isinstance(value, int)
        return value

    def _tile(self, axis: Value, level: str) -> int:
        return self._number("tile", axis, level)

    def _of(self, variable: str, copies: list[Term], without: int) -> tuple[int, int, int]:
        first, second, third = (self.values.get(Term(variable, (copy,)), without) for copy in copies)
        assert isinstance(first, int)
        assert isinstance(second, int)
        assert isinstance(third, int)
        return first, second, third
