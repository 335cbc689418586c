"""The tensors that candidates are called with: made once for a task, and inherited by every forked child."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.child import Report, run_in_child
from heron_asp.measure.data import Case, cases
from heron_asp.measure.kernel import Built, plain_tensor, tvm_target, use_threads
from heron_asp.operators import TensorSpec
from heron_asp.schedule.replay import KERNEL, Program
from heron_asp.task import Task

_SECONDS = 300.0  # that packing may take
_KEPT = 4  # ways of packing; most tasks have one
_Packed = dict[str, npt.NDArray[Any]]


class PackingError(Exception):
    """The functions that pack a program's constants do not compile, or do not run."""


class Operands:
    """Inputs and references of a task, and its constants in each layout that programs ask for.

    Building the functions that pack takes as long as building a kernel, and nearly all programs of a task share them.

    Args:
        task: operator, target and threads.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._made: dict[str, list[Any]] = {}
        self._packed: OrderedDict[tuple[object, ...], list[dict[str, Any]]] = OrderedDict()

    @cached_property
    def cases(self) -> list[Case]:
        """What candidates are checked on."""
        return cases(self.task.operator)

    def of(self, program: Program) -> list[list[Any]]:
        """For each case the operands of a call, as a program takes them, in the order of its arguments.

        Raises:
            PackingError: the program's functions that pack fail.
        """
        key = _key(program)
        if key not in self._packed:
            self._packed[key] = self._pack(program)
            if len(self._packed) > _KEPT:
                self._packed.popitem(last=False)
        self._packed.move_to_end(key)
        return [
            [
                packed[spec.name] if spec.name in packed else self._plain(spec)[number]
                for spec in self.task.operator.inputs
            ]
            for number, packed in enumerate(self._packed[key])
        ]

    def _plain(self, spec: TensorSpec) -> list[Any]:
        """An operand that is not packed, for each case."""
        if spec.name not in self._made:
            shape = next(one.shape for one in self.task.block.parameters if one.name == spec.name)
            self._made[spec.name] = [plain_tensor(spec, case.inputs[spec.name], shape) for case in self.cases]
        return self._made[spec.name]

    def _pack(self, program: Program) -> list[dict[str, Any]]:
        """The packed constants of each case; made in a child, since what TVM built may crash."""
        import tvm

        if not program.packings:
            return [{} for _ in self.cases]
        every = self.cases

        def work(report: Report) -> None:
            executable = tvm.compile(_without_kernel(program), target=tvm_target(self.task.target, 1))
            use_threads(self.task.threads)
            built = Built(self.task.operator, program, executable, self.task.threads)
            for number, case in enumerate(every):
                report(str(number), {name: tensor.numpy() for name, tensor in built.packed(case.inputs).items()})

        outcome = run_in_child(work, [_SECONDS])
        found: list[_Packed | None] = [outcome.value(str(number)) for number in range(len(every))]
        if None in found:
            why = outcome.value("error") or outcome.stderr or f"signal {outcome.signal}"
            raise PackingError("it took too long" if outcome.timed_out else str(why))
        return [
            {name: tvm.runtime.tensor(np.ascontiguousarray(values)) for name, values in packed.items()}
            for packed in found
            if packed is not None
        ]


def kernel_alone(program: Program) -> Program:
    """A program without the functions that pack its constants."""
    from tvm import IRModule

    return Program(IRModule({KERNEL: program.module[KERNEL]}), program.packings)


def _without_kernel(program: Program) -> Any:
    from tvm import IRModule

    return IRModule({packing.function: program.module[packing.function] for packing in program.packings})


def _key(program: Program) -> tuple[object, ...]:
    """Equal for programs whose constants are packed alike."""
    import tvm_ffi

    return tuple(
        (one.tensor, one.shape, tvm_ffi.structural_hash(program.module[one.function], map_free_vars=True))
        for one in program.packings
    )
