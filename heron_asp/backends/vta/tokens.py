"""Dependence tokens: how the stages wait for one another, in which orders they may run, and where they wait for ever.

Each stage runs its instructions in program order. Four counters join neighbouring stages; an instruction first takes
the tokens it asks for, then runs, then gives its own. The n-th taking of a counter thus always follows the n-th giving,
and nothing else orders instructions of different stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from heron_asp.backends.vta.isa import Instruction, Stage, opcode_of, stage_of
from heron_asp.errors import HeronError

Queue = tuple[Stage, Stage]  # giver, taker
QUEUES: tuple[Queue, ...] = (
    (Stage.LOAD, Stage.COMPUTE),
    (Stage.COMPUTE, Stage.LOAD),
    (Stage.COMPUTE, Stage.STORE),
    (Stage.STORE, Stage.COMPUTE),
)
MOST_TOKENS = 255  # the RTL's counters stay there when more are given
MOST_WAITING = (
    512  # instructions that wait for a stage or run in it; all others wait behind the next one for a full stage
)

Clock = tuple[int, int, int]  # how many instructions of each stage have surely ended


@dataclass(frozen=True)
class TokenUse:
    """One flag of one instruction that has no queue, or one token that goes wrong.

    Attributes:
        number: the instruction.
        flag: its field.
        reason: what is wrong, as a sentence without a subject.
    """

    number: int
    flag: str
    reason: str


@dataclass
class Waits:
    """What the tokens of a program mean.

    Attributes:
        order: instruction numbers in an order of execution that respects the tokens, close to that of the program;
            those that never start are absent.
        before: for each instruction that starts, the instructions of each stage that ended before it in every run.
        position: for each instruction its place among those of its stage.
        stuck: for each stage that never ends, its first instruction that never starts, and the flags it waits for.
        without_queue: flags that name a neighbour which the stage has not.
        left: tokens that nobody takes, by queue, with the last instruction that gives one.
        most: the most tokens that can lie in a queue, with the instruction that gives the last of them.
        dispatched: how many instructions reached their stage.
    """

    order: list[int] = field(default_factory=list)
    before: list[Clock | None] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    stuck: dict[Stage, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    without_queue: list[tuple[int, str]] = field(default_factory=list)
    left: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    most: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    dispatched: int = 0

    def precedes(self, first: int, stage: Stage, second: int) -> bool:
        """Whether the `first`-th instruction of `stage` ended before instruction `second` starts, in every run."""
        clock = self.before[second]
        return clock is not None and clock[stage] > first


def neighbour(stage: Stage, flag: str) -> Stage | None:
    """The stage that a token flag names, None where there is none."""
    other = stage - 1 if flag.endswith("prev") else stage + 1
    return Stage(other) if 0 <= other <= Stage.STORE else None


def flags_of(instruction: Instruction, verb: str) -> list[str]:
    """The flags `pop_...` or `push_...` that are set."""
    return [flag for flag in (f"{verb}_prev", f"{verb}_next") if getattr(instruction, flag)]


class _Run:
    """One pass over a program: of the instructions that could start, the first of the program does."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.program = instructions
        self.stages = [stage_of(instruction) for instruction in instructions]
        self.lists: dict[Stage, list[int]] = {stage: [] for stage in Stage}
        self.waits = Waits(before=[None] * len(instructions))
        for number, stage in enumerate(self.stages):
            self.waits.position.append(len(self.lists[stage]))
            self.lists[stage].append(number)
        self.pops = [self._queues(number, "pop") for number in range(len(instructions))]
        self.pushes = [self._queues(number, "push") for number in range(len(instructions))]
        self.given: dict[Queue, list[Clock]] = {queue: [] for queue in QUEUES}
        self.givers: dict[Queue, list[int]] = {queue: [] for queue in QUEUES}
        self.taken: dict[Queue, int] = dict.fromkeys(QUEUES, 0)
        self.takings: dict[Queue, list[int]] = {queue: [] for queue in QUEUES}  # positions of the taking instructions

    def _queues(self, number: int, verb: str) -> list[Queue]:
        stage, found = self.stages[number], []
        for flag in flags_of(self.program[number], verb):
            other = neighbour(stage, flag)
            if other is None:
                self.waits.without_queue.append((number, flag))
            else:
                found.append((other, stage) if verb == "pop" else (stage, other))
        return found

    def missing(self, number: int) -> list[Queue]:
        return [queue for queue in self.pops[number] if self.taken[queue] >= len(self.given[queue])]

    def execute(self, number: int, clock: Clock) -> Clock:
        """Takes and gives the tokens; `clock` is what the stage knew, the result what it knows afterwards."""
        stage, place = self.stages[number], self.waits.position[number]
        for queue in self.pops[number]:
            other = self.given[queue][self.taken[queue]]
            self.taken[queue] += 1
            self.takings[queue].append(place)
            clock = (max(clock[0], other[0]), max(clock[1], other[1]), max(clock[2], other[2]))
        self.waits.before[number] = clock
        self.waits.order.append(number)
        after = list(clock)
        after[stage] = place + 1
        clock = (after[0], after[1], after[2])
        for queue in self.pushes[number]:
            self.given[queue].append(clock)
            self.givers[queue].append(number)
        return clock

    def run(self, most_waiting: int) -> Waits:
        """Runs with queues of a length; 0 for endless ones."""
        clocks: dict[Stage, Clock] = dict.fromkeys(Stage, (0, 0, 0))
        heads, tails = dict.fromkeys(Stage, 0), dict.fromkeys(Stage, 0)
        while True:
            while self.waits.dispatched < len(self.stages):
                stage = self.stages[self.waits.dispatched]
                if most_waiting and tails[stage] - heads[stage] >= most_waiting:
                    break
                tails[stage] += 1
                self.waits.dispatched += 1
            following = [self.lists[stage][heads[stage]] for stage in Stage if heads[stage] < tails[stage]]
            number = min((n for n in following if not self.missing(n)), default=None)
            if number is None:
                break
            stage = self.stages[number]
            clocks[stage] = self.execute(number, clocks[stage])
            heads[stage] += 1
        for stage in Stage:
            if heads[stage] < len(self.lists[stage]):
                self._explain(stage, self.lists[stage][heads[stage]])
        for queue in QUEUES:
            if (over := len(self.given[queue]) - self.taken[queue]) > 0:
                self.waits.left[queue] = (over, self.givers[queue][-1])
            self._most(queue)
        self.waits.without_queue.sort()
        return self.waits

    def _explain(self, stage: Stage, number: int) -> None:
        missing = {queue[0] for queue in self.missing(number)}
        flags = tuple(f for f in flags_of(self.program[number], "pop") if neighbour(stage, f) in missing)
        self.waits.stuck[stage] = (number, flags)

    def _most(self, queue: Queue) -> None:
        """A giving may precede every taking that does not surely precede it."""
        taker, taken, worst = queue[1], 0, (0, -1)
        for count, (clock, giver) in enumerate(zip(self.given[queue], self.givers[queue], strict=True), 1):
            while taken < len(self.takings[queue]) and self.takings[queue][taken] < clock[taker]:
                taken += 1
            worst = max(worst, (count - taken, giver), key=lambda pair: pair[0])
        self.waits.most[queue] = worst


def follow(instructions: Sequence[Instruction]) -> Waits:
    """Follows the tokens of a program without executing it, as if any number of instructions could wait for a stage."""
    return _Run(instructions).run(0)


def held_up(instructions: Sequence[Instruction]) -> int | None:
    """The instruction that never reaches its stage because 512 wait there, in a program that would end otherwise."""
    counts = [0] * len(Stage)
    for instruction in instructions:
        counts[stage_of(instruction)] += 1
    if max(counts) <= MOST_WAITING:
        return None
    dispatched = _Run(instructions).run(MOST_WAITING).dispatched
    return dispatched if dispatched < len(instructions) else None


def order_of(instructions: Sequence[Instruction]) -> list[int]:
    """An order of execution.

    Raises:
        HeronError: if a stage waits for ever.
    """
    waits = follow(instructions)
    if waits.stuck:
        raise HeronError("; ".join(describe_stuck(instructions, waits)), "Give the token, or do not wait for it.")
    return waits.order


def describe_stuck(instructions: Sequence[Instruction], waits: Waits) -> list[str]:
    """One sentence a stage that never ends."""
    sentences = []
    for stage, (number, flags) in waits.stuck.items():
        names = " and ".join(f"{flag} (from {_name(neighbour(stage, flag))})" for flag in flags)
        sentences.append(
            f"instruction {number} ({opcode_of(instructions[number]).name}): the {_name(stage)} stage waits for ever, "
            f"{names} takes a token that is never given"
        )
    return sentences


def _name(stage: Stage | None) -> str:
    return stage.name.lower() if stage is not None else "no stage"
