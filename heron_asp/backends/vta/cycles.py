"""How many cycles a program takes, from launch to FINISH, on the RTL with its simulated memory.

Event-driven, one event a request, an instruction and a token; no cycle is stepped through. What each unit does in which
cycle is read off the Chisel sources (`core/*.scala`, `shell/VME.scala`, `dpi/VTAMemDPI.scala`) and was compared with
recorded runs on a 64-bit bus; for wider buses it is an estimate. Data have no influence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial

from heron_asp.backends.vta.channel import Beats, Client, Clock, ReadChannel
from heron_asp.backends.vta.config import INSTRUCTION_BYTES, Configuration
from heron_asp.backends.vta.isa import (
    Alu,
    Compute,
    Finish,
    Instruction,
    Load,
    Memory,
    Stage,
    Store,
    Transfer,
    carries_only_tokens,
    stage_of,
)
from heron_asp.backends.vta.tokens import (
    MOST_TOKENS,
    MOST_WAITING,
    QUEUES,
    Queue,
    flags_of,
    held_up,
    neighbour,
    order_of,
)
from heron_asp.errors import HeronError

_PIPELINE = 6  # from the start of a GEMM or ALU instruction to its end, without its steps


class _StageState:
    """One stage: what waits for it, and when it can start again."""

    def __init__(self) -> None:
        self.queue: deque[tuple[int, Instruction]] = deque()  # cycle from which it is seen, instruction
        self.busy = False
        self.idle_from = 0


class _Model:
    def __init__(self, instructions: Sequence[Instruction], config: Configuration) -> None:
        self.program = instructions
        self.config = config
        self.bus = config.bus_bits // 8
        self.clock = Clock()
        self.channel = ReadChannel(self.clock)
        self.stages = {stage: _StageState() for stage in Stage}
        self.tokens: dict[Queue, int] = dict.fromkeys(QUEUES, 0)
        self.fetched = 0
        self.dispatched = 0
        self.blocked = False
        self.finished = 0

    def run(self) -> int:
        self.clock.at(1, self._fetch)
        self.clock.run()
        return self.finished

    # --- fetching: bursts of instructions, the next one when the last of the one before was dispatched ---

    def _fetch(self, cycle: int) -> None:
        count = min(self.config.burst_beats * self.bus // INSTRUCTION_BYTES, len(self.program) - self.fetched)
        if not count:
            return
        self.fetched += count
        beats = -(-count * INSTRUCTION_BYTES // self.bus)
        self.channel.request(cycle, Client.FETCH, beats, lambda _, times: self.clock.at(times[1] + 2, self._dispatch))

    def _dispatch(self, cycle: int) -> None:
        """Sends one instruction a cycle to its stage, in program order; a full queue holds up all."""
        instruction = self.program[self.dispatched]
        stage = stage_of(instruction)
        state = self.stages[stage]
        if len(state.queue) >= MOST_WAITING:
            self.blocked = True
            return
        state.queue.append((cycle + 1, instruction))
        self.clock.at(cycle + 1, partial(self._start, stage))
        self.dispatched += 1
        if self.dispatched < self.fetched:
            self.clock.at(cycle + 1, self._dispatch)
        else:
            self.clock.at(cycle + 2, self._fetch)

    # --- stages: take tokens, run, give tokens ---

    def _start(self, stage: Stage, cycle: int) -> None:
        state = self.stages[stage]
        if state.busy or cycle < state.idle_from or not state.queue or state.queue[0][0] > cycle:
            return
        instruction = state.queue[0][1]
        pops = self._queues(stage, instruction, "pop")
        if any(not self.tokens[queue] for queue in pops):
            return
        for queue in pops:
            self.tokens[queue] -= 1
        state.busy = True
        if isinstance(instruction, Load) and not carries_only_tokens(instruction):
            _Loading(self, instruction, cycle)
        else:
            self.clock.at(cycle + self._duration(instruction), partial(self.end, stage))

    def _queues(self, stage: Stage, instruction: Instruction, verb: str) -> list[Queue]:
        queues = []
        for flag in flags_of(instruction, verb):
            if (other := neighbour(stage, flag)) is not None:
                queues.append((other, stage) if verb == "pop" else (stage, other))
        return queues

    def _duration(self, instruction: Instruction) -> int:
        """Cycles from the start to the one in which tokens are given, of what needs no read channel."""
        if isinstance(instruction, Finish) or carries_only_tokens(instruction):
            return 1
        if isinstance(instruction, Store):
            return self._storing(instruction)
        assert isinstance(instruction, Compute)
        by_register = isinstance(instruction, Alu) and not instruction.use_imm
        return _PIPELINE + instruction.steps * (2 if by_register else 1)

    def _storing(self, store: Store) -> int:
        """Three cycles a burst and one more a line of an output: each is read from the scratchpad before it is sent."""
        line = max(1, self.config.element_bytes(Memory.OUT) // self.config.batch // self.bus) + 1
        cycles = 0
        for beats in _requests(store, self.config):
            cycles += 3 + beats * line // (line - 1)
        return cycles

    def end(self, stage: Stage, cycle: int) -> None:
        """The stage's instruction ends: gives its tokens, which are seen one cycle later."""
        state = self.stages[stage]
        _, instruction = state.queue.popleft()
        state.busy, state.idle_from = False, cycle + 1
        if isinstance(instruction, Finish):
            self.finished = cycle
        for queue in self._queues(stage, instruction, "push"):
            self.clock.at(cycle + 1, partial(self._give, queue))
        self.clock.at(cycle + 1, partial(self._start, stage))
        if self.blocked and stage is stage_of(self.program[self.dispatched]):
            self.blocked = False
            self.clock.at(cycle + 1, self._dispatch)

    def _give(self, queue: Queue, cycle: int) -> None:
        self.tokens[queue] = min(MOST_TOKENS, self.tokens[queue] + 1)
        self._start(queue[1], cycle)


class _Loading:
    """One LOAD: its requests, and the zeros of its padding, which are written in cycles without data."""

    def __init__(self, model: _Model, load: Load, start: int) -> None:
        self.model = model
        self.load = load
        self.start = start
        self.client = Client[load.memory_type.name]
        self.requests = _requests(load, model.config)
        self.wide = model.config.element_bytes(load.memory_type) <= model.bus
        self.arrivals: list[Beats] = []
        self.beats = next(self.requests)
        model.clock.at(start + 1 + load.y_pad_0, self._ask)

    def _ask(self, cycle: int) -> None:
        self.model.channel.request(cycle, self.client, self.beats, self._issued)

    def _issued(self, cycle: int, times: Beats) -> None:
        delay = 1 if self.wide else 2  # narrow memories take data one register later
        self.arrivals.append((times[0] + delay, times[1] + delay))
        following = next(self.requests, None)
        if following is not None:
            self.beats = following
            self.model.clock.at(cycle + 1, self._ask)
            return
        end = self.arrivals[-1][1] + 1
        if self.load.padded:
            end = max(end, self._zeros())
        self.model.clock.at(end, partial(self.model.end, stage_of(self.load)))

    def _zeros(self) -> int:
        """The first cycle in which all zeros are written.

        Rows without zeros of their own still cost a cycle each if zeros follow below them.
        """
        load = self.load
        sides = (load.x_pad_0 + load.x_pad_1) * load.y_size
        cycle = self._write(self.start + (1 if self.wide else 2), load.y_pad_0 * load.row + sides)
        if load.y_pad_1:
            cycle += 0 if sides else load.y_size
            cycle = self._write(cycle, load.y_pad_1 * load.row)
        return cycle

    def _write(self, cycle: int, zeros: int) -> int:
        """The cycle after `zeros` cycles without data have passed, from `cycle` on."""
        for first, last in self.arrivals:
            if last < cycle:
                continue
            if zeros <= first - cycle:
                break
            zeros -= max(0, first - cycle)
            cycle = last + 1
        return cycle + zeros


def _requests(transfer: Transfer, config: Configuration) -> Iterator[int]:
    """Beats of each request of a transfer: rows are cut where a request would cross a boundary of a burst."""
    bus, size = config.bus_bits // 8, config.element_bytes(transfer.memory_type)
    burst = config.burst_beats * bus  # requests do not cross a boundary of as many bytes
    for row in range(max(1, transfer.y_size)):
        address = (transfer.dram_base + row * transfer.x_stride) * size
        end = address + transfer.x_size * size
        address -= address % bus
        while address < end:
            boundary = address - address % burst + burst
            yield -(-(min(boundary, end) - address) // bus)
            address = boundary


def count_cycles(instructions: Sequence[Instruction], config: Configuration, checked: bool = False) -> int:
    """Cycles from launch to FINISH.

    Args:
        instructions: the program.
        config: the device.
        checked: `checker.check` found nothing, so that it surely ends.

    Raises:
        HeronError: if a stage waits for ever, or an instruction never reaches its stage.
    """
    if checked:
        return _Model(instructions, config).run()
    order_of(instructions)
    if (late := held_up(instructions)) is not None:
        raise HeronError(
            f"instruction {late}: {MOST_WAITING} instructions wait in its stage for what stands behind it",
            "Move what they wait for before them.",
        )
    return _Model(instructions, config).run()
