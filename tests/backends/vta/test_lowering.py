"""Programs made from candidates: right on random operators, accepted by the checker, as fast as the device allows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heron_asp.backends.vta.checker import check
from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.cycles import count_cycles
from heron_asp.backends.vta.functional import simulate
from heron_asp.backends.vta.isa import Load, Memory, Store
from heron_asp.backends.vta.lowering import Lowered
from heron_asp.backends.vta.lowering.kernels import Loop, nest_of, nests_of, sweep_of
from heron_asp.backends.vta.lowering.transfers import Rows, can_pad, transfers
from heron_asp.backends.vta.measure import VtaDevice
from heron_asp.cli.common import parse_pins
from heron_asp.errors import HeronError, InternalError
from heron_asp.intrinsics import IntrinsicAxis
from heron_asp.measure.data import cases
from heron_asp.operators import operator
from heron_asp.resources import targets_folder
from heron_asp.space import Candidate
from heron_asp.target import Target, load_target
from heron_asp.task import Task
from tests.backends.vta.devices import SMALL, changed

PYNQ = load_target(targets_folder() / "vta-pynq.toml")
USUAL = PYNQ.shared.defaults.epilogue


def make(target: Target, name: str, epilogue: str = USUAL, layout: str | None = None, **shape: int) -> Task:
    return Task(operator(name, shape, "s8s8s32", layout, epilogue), target)


def sampled(task: Task, number: int, pins: Sequence[str] = (), seed: int = 0) -> list[Candidate]:
    return task.space.sample(number, np.random.default_rng(seed), parse_pins(list(pins)))


def run(task: Task, lowered: Lowered) -> None:
    """Checks, simulates, compares."""
    config = lowered.problem.config
    for case in cases(task.operator):
        image = lowered.image(case.inputs)
        assert check(lowered.instructions, config, image) == []
        simulate(lowered.instructions, image, config)
        assert case.error(lowered.result(image).reshape(case.expected.shape)) is None, task.operator.label


def loads(lowered: Lowered, memory: Memory) -> list[Load]:
    return [one for one in lowered.instructions if isinstance(one, Load) and one.memory_type is memory and one.x_size]


@st.composite
def operators(draw: st.DrawFn) -> tuple[str, dict[str, int], str | None]:
    """Odd channels, strides, dilation, kernels larger than the image, phases, batches."""
    few, many = st.integers(1, 3), st.integers(1, 11)
    name = draw(st.sampled_from(("gemm", "batch_matmul", "gemv", "scan", "conv1d", "conv2d", "conv2d_transposed")))
    keys = {"gemm": "mnk", "batch_matmul": "mnk", "gemv": "mk", "scan": "mnk"}.get(name)
    if keys is not None:
        shape = {key: draw(st.integers(1, 30)) for key in keys}
        if name == "scan":
            shape["k"] = shape["n"]
        return name, shape | ({"batch": draw(few)} if name == "batch_matmul" else {}), None
    dims = "w" if name == "conv1d" else "hw"
    shape = {"n": draw(st.integers(1, 2)), "ci": draw(many), "co": draw(many)}
    shape |= {key: draw(many) for key in dims} | {f"k{key}": draw(st.integers(1, 4)) for key in dims}
    shape |= {"padding": draw(st.integers(0, 2)), "stride": draw(few), "dilation": draw(st.integers(1, 2))}
    return name, shape, draw(st.sampled_from((None, "channels-first")))


EPILOGUES = st.sampled_from((USUAL, f"bias,{USUAL}", "add,bias,shift=17,clip=-100:90,narrow=s8", "relu,narrow=s8"))


@given(operators(), EPILOGUES, st.sampled_from(("vta-pynq", "small", "vta-32")), st.integers(0, 99))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_sampled_programs_are_right(
    said: tuple[str, dict[str, int], str | None], epilogue: str, device: str, seed: int
) -> None:
    name, shape, layout = said
    target = SMALL if device == "small" else load_target(targets_folder() / f"{device}.toml")
    try:
        task = make(target, name, epilogue, layout, **shape)
    except HeronError:
        return  # no such operator: a kernel beyond the padded image
    if task.space.count({}) == 0:
        assert target is SMALL or not task.space.parts or any(not one.tensorized for one in task.sketches), task.key
        return
    measuring = VtaDevice(task)
    for candidate in sampled(task, 2, seed=seed):
        run(task, measuring.lowered(candidate))


@pytest.mark.parametrize(
    ("extent", "pins", "most"),
    [
        (
            64,
            ["tile(c_sum,n,tile)=32", "tile(c_sum,m,tile)=1", "tile(c_sum,k,tile)=4", "position(wgt(a))=block"],
            3169,
        ),
        (
            128,
            ["tile(c_sum,n,tile)=32", "tile(c_sum,m,tile)=2", "tile(c_sum,k,tile)=8", "position(wgt(a))=block"],
            14671,
        ),
    ],
)
def test_matrix_products_are_fast(extent: int, pins: list[str], most: int) -> None:
    """At most the cycles of the best of 60 and 50 random schedules of an earlier experiment, on the RTL."""
    task = make(PYNQ, "gemm", m=extent, n=extent, k=extent)
    device = VtaDevice(task)
    programs = [device.lowered(one) for one in sampled(task, 40, pins)]
    assert min(count_cycles(one.instructions, one.problem.config) for one in programs) <= most


@pytest.mark.parametrize(
    ("size", "channels", "tile"), [(14, 256, {"oh": 14, "ow": 14, "co": 2}), (56, 64, {"oh": 7, "ow": 56, "co": 2})]
)
def test_convolutions_come_close_to_one_product_a_cycle(size: int, channels: int, tile: dict[str, int]) -> None:
    task = make(PYNQ, "conv2d", n=1, h=size, w=size, ci=channels, co=channels, kh=3, kw=3, padding=1)
    pins = [f"tile(y_sum,{axis},tile)={extent}" for axis, extent in tile.items()]
    pins += ["tile(y_sum,kh,tile)=3", "tile(y_sum,kw,tile)=3", "tile(y_sum,co,block)=1", "tile(y_sum,oh,block)=1"]
    device = VtaDevice(task)
    programs = [device.lowered(one) for one in sampled(task, 40, pins)]
    steps = size * size * (channels // 16) ** 2 * 9
    assert steps / min(count_cycles(one.instructions, one.problem.config) for one in programs) >= 0.85


def test_a_second_buffer_hides_loads() -> None:
    task = make(PYNQ, "gemm", m=64, n=64, k=256)
    tile = ["tile(c_sum,m,tile)=32", "tile(c_sum,n,tile)=4", "tile(c_sum,k,tile)=2", "tile(c_sum,m,task)=2"]
    tile += ["position(inp(a))=strip", "position(wgt(b))=strip"]
    device = VtaDevice(task)
    cycles = {}
    for slots in (1, 2):
        (one,) = sampled(task, 1, [*tile, *(f"slots({copy})={slots}" for copy in ("inp(a)", "wgt(b)", "acc(c_sum)"))])
        cycles[slots] = count_cycles(device.lowered(one).instructions, PYNQ_CONFIG)
    assert cycles[2] < 0.8 * cycles[1]


PYNQ_CONFIG = Configuration()


@pytest.mark.parametrize(("position", "expected"), [("strip", 4), ("task", 2), ("start", 1)])
def test_loads_sit_where_they_attach(position: str, expected: int) -> None:
    """Two row tiles, two chunks of the sum: a load for each, one for both chunks, one for everything."""
    task = make(PYNQ, "gemm", m=32, n=16, k=64)
    pins = ["tile(c_sum,m,task)=2", "tile(c_sum,m,tile)=16", "tile(c_sum,k,tile)=2", f"position(inp(a))={position}"]
    (one,) = sampled(task, 1, pins)
    found = loads(VtaDevice(task).lowered(one), Memory.INP)
    assert len(found) == expected
    assert sum(load.y_size * load.x_size for load in found) == 32 * 4


def test_what_is_still_there_is_not_loaded_again() -> None:
    task = make(PYNQ, "gemm", m=32, n=64, k=32)
    pins = ["tile(c_sum,n,task)=4", "tile(c_sum,m,task)=2", "inner(c_sum,task)=n", "position(inp(a))=task"]
    (one,) = sampled(task, 1, [*pins, "tile(c_sum,m,tile)=16", "slots(inp(a))=1"])
    assert len(loads(VtaDevice(task).lowered(one), Memory.INP)) == 2


def test_halos_are_padded_by_the_load() -> None:
    task = make(PYNQ, "conv2d", n=1, h=6, w=6, ci=16, co=16, kh=3, kw=3, padding=1)
    pins = [
        f"tile(y_sum,{axis},{level})={2 if level == 'task' else 3}"
        for axis in ("oh", "ow")
        for level in ("task", "tile")
    ]
    (one,) = sampled(task, 1, [*pins, "position(inp(x))=task"])
    found = loads(VtaDevice(task).lowered(one), Memory.INP)
    pads = {(i.y_pad_0, i.y_pad_1, i.x_pad_0, i.x_pad_1) for i in found}
    assert pads == {(1, 0, 1, 0), (1, 0, 0, 1), (0, 1, 1, 0), (0, 1, 0, 1)}
    assert {(i.y_size, i.x_size, i.x_stride) for i in found} == {(4, 4, 6)}


def test_the_micro_op_memory_is_filled_again_when_it_is_full() -> None:
    tiny = changed(SMALL, uop=64)
    task = make(tiny, "conv2d", n=2, h=8, w=8, ci=8, co=8, kh=3, kw=3, padding=1)
    device = VtaDevice(task)
    found = [device.lowered(one) for one in sampled(task, 40)]
    refilled = [one for one in found if len(one.uops) > one.problem.config.portable_uops == 16]
    assert refilled
    assert sum(load.sram_base == 0 for load in loads(refilled[0], Memory.UOP)) > 1
    run(task, refilled[0])


def test_stores_wait_for_their_sums_only() -> None:
    task = make(PYNQ, "gemm", m=64, n=64, k=64)
    pins = ["tile(c_sum,m,task)=2", "tile(c_sum,n,task)=2", "tile(c_sum,m,tile)=32", "tile(c_sum,n,tile)=2"]
    (one,) = sampled(task, 1, pins)
    stores = [i for i in VtaDevice(task).lowered(one).instructions if isinstance(i, Store)]
    assert len(stores) == 4
    assert all(store.pop_prev for store in stores)


# -- transfers ---------------------------------------------------------------------------------------------------------


def test_neighbouring_rows_are_one_transfer() -> None:
    assert list(transfers([(0, 2), (4, 8)], [(0, 4), (0, 16)])) == [Rows(0, 4, 2, 4, 16)]
    assert list(transfers([(1, 3), (0, 16)], [(0, 4), (0, 16)])) == [Rows(0, 16, 1, 32, 32)]
    assert list(transfers([(0, 2), (1, 3), (0, 16)], [(0, 2), (0, 4), (0, 16)])) == [Rows(0, 16, 2, 32, 64)]


def test_what_is_not_held_is_padded() -> None:
    assert list(transfers([(-1, 3), (-2, 4)], [(0, 8), (0, 3)])) == [Rows(0, 0, 3, 3, 3, (1, 0, 2, 1))]
    assert can_pad([(-1, 3), (6, 9)], (0, 8))
    assert not can_pad([(-3, 0)], (0, 8)), "nothing of it is held"
    assert not can_pad([(-16, 3)], (0, 8)), "more than a field holds"


def test_large_strides_are_cut_into_rows() -> None:
    rows = list(transfers([(0, 3), (0, 2)], [(0, 3), (0, 70_000)]))
    assert rows == [Rows(2 * at, 70_000 * at, 1, 2, 2) for at in range(3)]
    with pytest.raises(HeronError, match="rows of a padded block are 70000 entries apart"):
        list(transfers([(-1, 2), (0, 2)], [(0, 3), (0, 70_000)]))


@given(st.data())
def test_transfers_move_each_entry_once(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    held, wanted = [], []
    for at in range(rank):
        size = data.draw(st.integers(1, 5))
        low, high = sorted(data.draw(st.tuples(st.integers(0, size - 1), st.integers(1, size))))
        pads = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) if at >= rank - 2 else (0, 0)
        held.append((0, size))
        wanted.append((-pads[0] if pads[0] else low, size + pads[1] if pads[1] else max(high, low + 1)))
    dram = np.arange(1, 1 + np.prod([high for _, high in held])).reshape([high for _, high in held])
    expected = np.zeros([high - low for low, high in wanted], int)
    inside = tuple(slice(max(low, 0), min(high, size)) for (low, high), (_, size) in zip(wanted, held, strict=True))
    into = tuple(
        slice(max(-low, 0), max(-low, 0) + part.stop - part.start)
        for (low, _), part in zip(wanted, inside, strict=True)
    )
    expected[into] = dram[inside]
    found = np.full(expected.size, -1)
    for rows in transfers(wanted, held):
        width = rows.pads[2] + rows.row + rows.pads[3]
        block = np.zeros((rows.pads[0] + rows.rows + rows.pads[1], width), int)
        for row in range(rows.rows):
            start = rows.dram + row * rows.stride
            block[rows.pads[0] + row, rows.pads[2] : rows.pads[2] + rows.row] = dram.ravel()[start : start + rows.row]
        assert (found[rows.sram : rows.sram + block.size] == -1).all()
        found[rows.sram : rows.sram + block.size] = block.ravel()
    assert (found == expected.ravel()).all()


# -- micro-ops ---------------------------------------------------------------------------------------------------------


def test_few_sums_are_not_used_again_at_once() -> None:
    with pytest.raises(HeronError, match="adds to a sum again before 3 steps"):
        list(nests_of([Loop(4, 0, 1, 1), Loop(2, 1, 0, 4)], 99))


def test_nests_keep_the_distance_with_few_micro_ops() -> None:
    channels, rows, columns = Loop(4, 0, 100, 9), Loop(3, 0, 10, 3), Loop(3, 0, 1, 1)
    high, wide = Loop(7, 8, 10, 0), Loop(8, 1, 1, 0)
    nest = nest_of((channels, rows, columns, high, wide))
    assert nest is not None
    assert nest.count == len(nest.micro_ops(0, 0, 0)) in (4 * 3 * 3, 3 * 3 * 7)
    assert nest_of((channels, Loop(2, 1, 1, 0))) is None
    assert nest_of((Loop(2, 1, 1, 0),)) is not None


def test_a_tile_with_too_many_micro_ops_becomes_several_instructions() -> None:
    loops = [Loop(4, 0, 100, 9), Loop(3, 0, 10, 3), Loop(3, 0, 1, 1), Loop(7, 8, 10, 0), Loop(8, 1, 1, 0)]
    found = list(nests_of(loops, 20))
    assert all(nest.count <= 20 for nest, _ in found)
    assert sum(nest.count * nest.outer.extent * nest.inner.extent for nest, _ in found) == 4 * 3 * 3 * 7 * 8
    with pytest.raises(InternalError, match="more than 1 micro-ops"):
        list(nests_of([Loop(2, 1), Loop(2, 3), Loop(2, 9)], 1))


def test_a_sweep_joins_what_lies_together() -> None:
    nest = sweep_of([Loop(4, 12, 3), Loop(3, 4, 1), Loop(4, 1, 0)])
    assert (nest.outer, nest.inner, nest.uops) == (Loop(12, 4, 1), Loop(4, 1, 0), ())
    assert sweep_of([Loop(1, 5, 5)]).count == 1


def test_an_axis_may_play_the_rows_of_an_entry() -> None:
    """Two rows in an entry: the axis of the rows is cut into pairs."""
    task = make(SMALL, "gemm", m=9, n=20, k=10)
    assert IntrinsicAxis(role="b", kind="spatial", extent=2) in SMALL.intrinsics["gemm"].axes
    assert {text for sketch in task.sketches for _, text, _ in sketch.of("maps")} == {"b", "n", "k"}
