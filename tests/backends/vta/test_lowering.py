"""Programs made from schedules: right on random shapes, accepted by the checker, and as fast as the device allows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from heron_asp.backends.vta.checker import check
from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.cycles import count_cycles
from heron_asp.backends.vta.functional import simulate
from heron_asp.backends.vta.isa import Compute, Load, Memory, Store
from heron_asp.backends.vta.lowering import Lowered, Problem, Requantise, Schedule, conv2d, lower, matmul
from heron_asp.backends.vta.lowering.kernels import Loop, nest_of, nests_of
from heron_asp.backends.vta.lowering.schedule import AXES
from heron_asp.errors import HeronError

PYNQ = Configuration()
# Small memories, so that random tiles meet their limits; two rows in an entry; 64 micro-ops.
SMALL = Configuration(
    log_batch=1, log_block=2, log_uop_buff_size=8, log_inp_buff_size=9, log_wgt_buff_size=10, log_acc_buff_size=11
)


def operands(problem: Problem, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    image = () if problem.channels_last else (problem.in_height, problem.in_width)
    kernel = () if problem.channels_last else problem.kernel
    data = rng.integers(-128, 128, (problem.images, problem.inputs, *image)).astype(np.int8)
    weights = rng.integers(-128, 128, (problem.outputs, problem.inputs, *kernel)).astype(np.int8)
    return data, weights, rng.integers(-20000, 20000, problem.outputs)


def reference(problem: Problem, data: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The operator in NumPy's 64-bit integers."""
    if problem.channels_last:
        data, weights = data[:, :, None, None], weights[:, :, None, None]
    pad, stride = problem.pad, problem.stride
    padded = np.pad(data.astype(np.int64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    height = (padded.shape[2] - weights.shape[2]) // stride + 1
    width = (padded.shape[3] - weights.shape[3]) // stride + 1
    sums = np.zeros((len(data), len(weights), height, width), np.int64)
    for y in range(weights.shape[2]):
        for x in range(weights.shape[3]):
            part = padded[:, :, y : y + stride * (height - 1) + 1 : stride, x : x + stride * (width - 1) + 1 : stride]
            sums += np.einsum("nihw,oi->nohw", part, weights[:, :, y, x].astype(np.int64))
    if problem.requantise.bias:
        sums += bias[None, :, None, None]
    result = np.clip(sums >> problem.requantise.shift, problem.requantise.low, problem.requantise.high)
    return result[:, :, 0, 0] if problem.channels_last else result


def run(lowered: Lowered, seed: int = 0) -> None:
    """Checks, simulates, compares."""
    problem = lowered.problem
    data, weights, bias = operands(problem, seed)
    image = lowered.image(data, weights, bias)
    assert check(lowered.instructions, problem.config, image) == []
    counters = simulate(lowered.instructions, image, problem.config)
    assert (lowered.output(image) == reference(problem, data, weights, bias)).all()
    assert counters.gemm_counter == problem.gemm_steps
    assert counters.out_store_nbytes == problem.output_bytes


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    size, slots = st.integers(1, 5), st.integers(1, 3)
    order = draw(st.permutations(AXES))
    return Schedule(
        *(draw(size) for _ in AXES),
        order=(order[0], order[1], order[2], order[3]),
        inp_at=draw(st.integers(0, 4)),
        wgt_at=draw(st.integers(0, 4)),
        inp_slots=draw(slots),
        wgt_slots=draw(slots),
        acc_slots=draw(slots),
    )


def lower_if_it_fits(problem: Problem, schedule: Schedule) -> Lowered:
    try:
        return lower(problem, schedule)
    except HeronError as error:
        if not error.message.startswith(("the schedule holds", "a tile needs")):
            raise
        reject()


QUANTISE = st.builds(
    Requantise,
    st.sampled_from((0, 3, 8, 15, 16, 31)),
    st.sampled_from((-128, 0, -5)),
    st.sampled_from((127, 60)),
    st.booleans(),
)


@given(
    st.integers(1, 24), st.integers(1, 30), st.integers(1, 30), schedules(), QUANTISE, st.sampled_from((SMALL, PYNQ))
)
@settings(max_examples=50, deadline=None)
def test_matrix_products(
    m: int, n: int, k: int, schedule: Schedule, quantise: Requantise, config: Configuration
) -> None:
    run(lower_if_it_fits(matmul(m, n, k, config, quantise), schedule))


@given(
    st.tuples(st.integers(1, 12), st.integers(1, 9), st.integers(1, 9)),
    st.integers(1, 12),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 3),
    st.integers(0, 2),
    schedules(),
    QUANTISE,
    st.sampled_from((SMALL, PYNQ)),
)
@settings(max_examples=50, deadline=None)
def test_convolutions(
    shape: tuple[int, int, int],
    outputs: int,
    kernel: tuple[int, int],
    stride: int,
    pad: int,
    schedule: Schedule,
    quantise: Requantise,
    config: Configuration,
) -> None:
    pad = min(pad, min(kernel) - 1)
    assume(min(shape[1] - kernel[0], shape[2] - kernel[1]) + 2 * pad >= 0)
    problem = conv2d(shape, outputs, kernel, config, stride, pad, quantise, images=config.batch)
    run(lower_if_it_fits(problem, schedule))


RELU = Requantise(8, 0, 127, bias=False)
GOOD: dict[str, tuple[Problem, Schedule, int]] = {
    "gemm 64": (matmul(64, 64, 64, PYNQ, RELU), Schedule(2, 32, 1, 2, ("i", "w", "h", "o")), 3169),
    "gemm 128": (matmul(128, 128, 128, PYNQ, RELU), Schedule(4, 32, 1, 2, ("i", "w", "h", "o")), 14671),
}


@pytest.mark.parametrize("name", GOOD)
def test_matrix_products_are_fast(name: str) -> None:
    problem, schedule, most = GOOD[name]
    lowered = lower(problem, schedule)
    run(lowered)
    assert count_cycles(lowered.instructions, PYNQ) <= most


@pytest.mark.parametrize(
    ("problem", "schedule"),
    [
        (conv2d((256, 14, 14), 256, (3, 3), PYNQ, pad=1), Schedule(2, 14, 14, 2)),
        (conv2d((64, 56, 56), 64, (3, 3), PYNQ, pad=1), Schedule(2, 6, 56, 1, ("h", "w", "o", "i"))),
    ],
    ids=["14x14x256", "56x56x64"],
)
def test_convolutions_come_close_to_one_product_a_cycle(problem: Problem, schedule: Schedule) -> None:
    lowered = lower(problem, schedule)
    extents = problem.extents
    moved = extents["i"] * problem.in_height * problem.in_width * 16 + extents["o"] * extents["i"] * problem.taps * 256
    bound = max(problem.gemm_steps, moved / 8)
    assert bound / count_cycles(lowered.instructions, PYNQ) >= 0.85
    data, weights, bias = operands(problem, 0)
    assert check(lowered.instructions, PYNQ, lowered.image(data, weights, bias)) == []


def test_a_second_buffer_hides_loads() -> None:
    problem = matmul(64, 64, 256, PYNQ, RELU)
    one = lower(problem, Schedule(4, 32, 1, 2, inp_slots=1, wgt_slots=1, acc_slots=1))
    two = lower(problem, Schedule(4, 32, 1, 2))
    assert count_cycles(two.instructions, PYNQ) < 0.8 * count_cycles(one.instructions, PYNQ)


@pytest.mark.parametrize(("at", "inputs"), [(4, 4), (2, 2), (0, 1)])
def test_loads_sit_where_they_attach(at: int, inputs: int) -> None:
    """Two row tiles, two reduction tiles: a load for each, one for both reductions, one for everything."""
    lowered = lower(matmul(32, 16, 64, PYNQ), Schedule(1, 16, 1, 2, ("h", "w", "i", "o"), inp_at=at))
    loads = [i for i in lowered.instructions if isinstance(i, Load) and i.memory_type is Memory.INP]
    assert len(loads) == inputs
    assert sum(load.y_size * load.x_size for load in loads) == 32 * 4


def test_what_is_still_there_is_not_loaded_again() -> None:
    lowered = lower(matmul(32, 64, 32, PYNQ), Schedule(1, 32, 1, 2, ("h", "w", "o", "i"), inp_slots=1))
    assert sum(isinstance(i, Load) and i.memory_type is Memory.INP for i in lowered.instructions) == 1


def test_halos_are_padded_by_the_load() -> None:
    lowered = lower(conv2d((16, 6, 6), 16, (3, 3), PYNQ, pad=1), Schedule(1, 3, 3, 1))
    loads = [i for i in lowered.instructions if isinstance(i, Load) and i.memory_type is Memory.INP]
    pads = {(i.y_pad_0, i.y_pad_1, i.x_pad_0, i.x_pad_1) for i in loads}
    assert pads == {(1, 0, 1, 0), (1, 0, 0, 1), (0, 1, 1, 0), (0, 1, 0, 1)}
    assert {(i.y_size, i.x_size, i.x_stride) for i in loads} == {(4, 4, 6)}


def test_micro_ops_are_shared_by_tiles() -> None:
    """32 tiles, two buffers of everything: the micro-ops of one tile serve all others in the same buffers."""
    lowered = lower(matmul(512, 16, 32, PYNQ), Schedule(1, 16, 1, 2))
    assert len(lowered.uops) < 16
    sequences = {(i.uop_bgn, i.uop_end) for i in lowered.instructions if isinstance(i, Compute)}
    assert len(sequences) < 10
    run(lowered)


def test_the_micro_op_memory_is_filled_again_when_it_is_full() -> None:
    tiny = SMALL.model_copy(update={"log_uop_buff_size": 6})
    problem = conv2d((8, 8, 8), 8, (3, 3), tiny, pad=1, images=2)
    lowered = lower(problem, Schedule(1, 2, 3, 1))
    loads = [i for i in lowered.instructions if isinstance(i, Load) and i.memory_type is Memory.UOP and i.x_size]
    assert len(lowered.uops) > tiny.portable_uops == 16
    assert len(loads) > 1
    assert sum(load.sram_base == 0 for load in loads) > 1
    run(lowered)


def test_large_strides_are_cut_into_rows() -> None:
    """65,536 columns of blocks do not fit the field of the stride."""
    lowered = lower(matmul(4, 1, 16 * 65600, PYNQ, Requantise(20)), Schedule(1, 4, 1, 400, inp_slots=1, wgt_slots=1))
    inputs = [i for i in lowered.instructions if isinstance(i, Load) and i.memory_type is Memory.INP]
    assert len(inputs) == 4 * 164
    assert all(i.y_size == 1 for i in inputs)


def test_few_accumulators_are_not_used_again_at_once() -> None:
    """One row, one block: every reduction step is an instruction of its own."""
    lowered = lower(matmul(1, 16, 64, PYNQ), Schedule(1, 1, 1, 4))
    run(lowered)
    assert [n.uops for n, _ in nests_of([Loop(4, 0, 1, 1), Loop(2, 1, 0, 4)])] == [()] * 4


def test_nests_keep_the_distance_with_few_micro_ops() -> None:
    channels, rows, columns = Loop(4, 0, 100, 9), Loop(3, 0, 10, 3), Loop(3, 0, 1, 1)
    high, wide = Loop(7, 8, 10, 0), Loop(8, 1, 1, 0)
    nest = nest_of((channels, rows, columns, high, wide))
    assert nest is not None
    assert len(nest.micro_ops(0, 0, 0)) == 4 * 3 * 3 or len(nest.micro_ops(0, 0, 0)) == 3 * 3 * 7
    assert nest_of((channels, Loop(2, 1, 1, 0))) is None
    assert nest_of((Loop(2, 1, 1, 0),)) is not None


@pytest.mark.parametrize(
    ("problem", "schedule", "message"),
    [
        (matmul(64, 64, 1024, PYNQ), Schedule(1, 64, 1, 64), "1 blocks of 4096 entries in INP; it has 2048"),
        (matmul(64, 64, 1024, PYNQ), Schedule(4, 32, 1, 32, inp_at=2), "2 blocks of 2048 entries in INP"),
        (matmul(64, 1024, 512, PYNQ), Schedule(64, 16, 1, 32), "1 blocks of 2048 entries in WGT; it has 1024"),
        (
            matmul(64, 1024, 128, PYNQ),
            Schedule(64, 16, 1, 8),
            "2 blocks of 1024 entries in ACC beside 64 for the bias; it has 2048",
        ),
    ],
)
def test_capacity(problem: Problem, schedule: Schedule, message: str) -> None:
    with pytest.raises(HeronError, match=message):
        lower(problem, schedule)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schedule(1, 1, 1, 1, ("o", "h", "w", "o")), "must name each of o, h, w, i once"),
        (lambda: Schedule(0, 1, 1, 1), "o is 0; it must be positive"),
        (lambda: Schedule(1, 1, 1, 1, inp_at=5), "inp_at is 5"),
        (lambda: Requantise(32), "shift is 32"),
        (lambda: Requantise(3, 5, 4), "low is 5 and high 4"),
        (lambda: matmul(0, 1, 1, PYNQ), "m is 0; it must be positive"),
        (lambda: conv2d((1, 2, 2), 1, (3, 3), PYNQ), "does not fit 2 x 2 with padding 0"),
        (lambda: conv2d((1, 5, 5), 1, (3, 3), PYNQ, pad=3), "pad is 3; from 0 up to 2"),
        (lambda: conv2d((1, 5, 5), 1, (3, 3), PYNQ, images=2), "2 images; an entry of this device holds 1"),
    ],
)
def test_what_cannot_be(make: object, message: str) -> None:
    with pytest.raises(HeronError, match=message):
        make()  # type: ignore[operator]


def test_stores_wait_for_their_tile_only() -> None:
    lowered = lower(matmul(64, 64, 64, PYNQ, RELU), Schedule(2, 32, 1, 4))
    stores = [i for i in lowered.instructions if isinstance(i, Store)]
    assert len(stores) == 4
    assert all(store.pop_prev for store in stores)
