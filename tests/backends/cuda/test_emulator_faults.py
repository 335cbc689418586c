"""What no device would forgive is found, and the message says where and what."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from heron_asp.backends.cuda.emulator import Copies, EmulationError, Order, UnsupportedError, compile_program
from heron_asp.backends.cuda.program import Program
from heron_asp.errors import InternalError
from tests.cuda_kernels import by_hand

HALVES = {"a": ("float16", (32, 32))}
FRAGMENT = "nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> f;"


def failure(program: Program, copies: Copies = Copies.LATE, **options: float) -> str:
    arrays = {buffer.name: np.ones(buffer.shape, buffer.storage) for buffer in program.buffers if buffer.use == "input"}
    with pytest.raises(EmulationError) as caught:
        compile_program(program).run(arrays, Order.FORWARD, copies, **options)
    return str(caught.value)


def test_a_misaligned_vector_names_the_line() -> None:
    message = failure(by_hand("*(float4*)out = *(float4*)(a + 2);"))
    assert "kernel k, block (0, 0, 0), thread (0, 0, 0): a misaligned access in line 3" in message
    assert re.search(r"loading '.*float4' needs a multiple of 16 bytes, this address is 8 bytes off", message)


def test_a_leading_dimension_that_fragments_cannot_have() -> None:
    message = failure(by_hand(f"{FRAGMENT} nvcuda::wmma::load_matrix_sync(f, a, 36);", inputs=HALVES))
    assert "load_matrix_sync in line 3: the leading dimension must be a multiple of 16 bytes" in message
    assert "and is 36 elements of 2" in message


def test_a_fragment_at_a_misaligned_address() -> None:
    message = failure(by_hand(f"{FRAGMENT} nvcuda::wmma::load_matrix_sync(f, a + 8, 32);", inputs=HALVES))
    assert "a multiple of 32 bytes is needed, this one is 16 bytes off" in message


@pytest.mark.parametrize("copies", Copies)
@pytest.mark.parametrize(("index", "offset"), [(32, 128), (40, 160), (-1, -4)])
def test_global_memory_out_of_bounds(index: int, offset: int, copies: Copies) -> None:
    message = failure(by_hand(f"out[{index}] = a[0];"), copies)
    assert f"byte {offset} of the buffer out, which has 128 bytes" in message
    assert message.startswith("kernel k")


def test_a_read_behind_the_end_is_found_where_it_touches_the_guard() -> None:
    message = failure(by_hand("out[threadIdx.x] = a[threadIdx.x + 1];"))
    assert "thread (31, 0, 0): out of bounds, byte 128 of the buffer a, which has 128 bytes" in message


def test_a_read_before_the_start_is_found_with_early_copies() -> None:
    message = failure(by_hand("out[threadIdx.x] = a[(int)threadIdx.x - 1];"), Copies.EARLY)
    assert "thread (0, 0, 0): out of bounds, byte -4 of the buffer a" in message


def test_inputs_are_not_written() -> None:
    assert "thread (0, 0, 0): a write to the input a" in failure(by_hand("a[0] = 1.0f;"))


def test_a_null_pointer_is_in_no_buffer() -> None:
    assert "address 0x0 is in no buffer" in failure(by_hand("out[0] = *(volatile float*)nullptr;"))


def test_dynamic_shared_memory_out_of_bounds() -> None:
    body = "extern __shared__ __align__(64) unsigned char s[]; ((float*)s)[{}] = a[0];"
    message = failure(by_hand(body.format("threadIdx.x + 128"), shared=512))
    assert "out of bounds, byte 512 of dynamic shared memory, which has 512 bytes" in message
    message = failure(by_hand(body.format("130"), shared=520))  # too near for a guard page: found at the end
    assert "a write out of bounds, byte 520 of shared memory of 520 bytes" in message
    assert "of which the launch asks for 0" in failure(by_hand(body.format("0"), shared=0))


def test_static_shared_memory_out_of_bounds() -> None:
    message = failure(by_hand("__shared__ alignas(64) float s[64]; s[threadIdx.x + 64] = a[0];"))
    assert "out of bounds, byte 256 of an array in shared memory, which has 256 bytes" in message


def test_an_array_of_registers_out_of_bounds() -> None:
    message = failure(by_hand("float r[4]; r[threadIdx.x] = a[0]; out[0] = r[0];"))
    assert "thread (4, 0, 0): an index out of bounds in line 3: 4 of 'float [4]'" in message


def test_a_barrier_that_only_some_threads_reach() -> None:
    message = failure(by_hand("if (threadIdx.x < 8) {\n__syncthreads();\n}\nout[threadIdx.x] = 0;"))
    assert "thread (31, 0, 0): ended and never reaches the barrier in line 4 that thread (7, 0, 0) waits at" in message


def test_different_barriers() -> None:
    message = failure(by_hand("if (threadIdx.x < 8) {\n__syncthreads();\n} else {\n__syncthreads();\n}"))
    assert "waits at the barrier in line 6, thread (0, 0, 0) at the one in line 4" in message


def test_a_warp_that_does_not_meet() -> None:
    body = "if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffff, a[threadIdx.x], 0);"
    assert "thread (16, 0, 0): never reaches the shuffle in line 3" in failure(by_hand(body))


def test_a_fragment_of_half_a_warp() -> None:
    body = f"{FRAGMENT} if (threadIdx.x < 16) nvcuda::wmma::load_matrix_sync(f, a, 32);"
    assert "thread (16, 0, 0): never reaches the load_matrix_sync in line 3" in failure(by_hand(body, inputs=HALVES))


def test_lanes_that_load_different_fragments() -> None:
    body = f"{FRAGMENT} nvcuda::wmma::load_matrix_sync(f, a + threadIdx.x / 16 * 512, 32);"
    message = failure(by_hand(body, inputs=HALVES))
    assert "thread (16, 0, 0): gives load_matrix_sync in line 3 another address or leading dimension" in message


def test_an_endless_loop_ends() -> None:
    message = failure(by_hand("while (threadIdx.x == 5 && *(volatile float*)a == 1.0f) {}"), timeout=0.5)
    assert message == "kernel k, block (0, 0, 0), thread (5, 0, 0): not at its end after 0.5 seconds"


def test_shared_memory_begins_as_garbage() -> None:
    body = "extern __shared__ unsigned char s[]; out[threadIdx.x] = ((float*)s)[threadIdx.x];"
    outputs = compile_program(by_hand(body, shared=128)).run({"a": np.ones(32, np.float32)})
    assert np.isnan(outputs["out"]).all()


def test_what_a_block_leaves_in_shared_memory_is_gone() -> None:
    body = "extern __shared__ unsigned char s[]; if (blockIdx.x) out[0] = ((float*)s)[0]; else ((float*)s)[0] = 1.0f;"
    outputs = compile_program(by_hand(body, blocks=2, shared=128)).run({"a": np.ones(32, np.float32)})
    assert np.isnan(outputs["out"]).all()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('asm volatile("bar.sync 1;");', "line 3 of the CUDA source: the emulator does not know the PTX `bar.sync`"),
        ('asm volatile("wgmma.fence.sync.aligned;");', "`wgmma.fence.sync.aligned`"),
        ('asm volatile("mov.u32 %0, %laneid;" : "=r"(x));', "`mov.u32`"),
        ("__shared__ float s;", "shared memory other than an array: float s"),
        ("out[0] = __nanosleep(3);", "line 3: '__nanosleep' was not declared"),
        ("nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 8, 8, 32, int> f;", "fragments are of 16x16x16, 32x8x16"),
    ],
)
def test_what_is_not_known_is_named(body: str, words: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        compile_program(by_hand(body))
    assert words in re.sub("[\u2018\u2019]", "'", str(caught.value))  # compilers quote in the user's language


def test_an_unknown_header_is_named() -> None:
    program = by_hand("out[0] = 0;")
    program = replace(program, source=program.source.replace("mma.h", "curand.h"))
    with pytest.raises(UnsupportedError, match=r"line 1 of the CUDA source: the emulator has no header `curand\.h`"):
        compile_program(program)


def test_launches_that_are_impossible() -> None:
    program = by_hand("out[0] = 0;")
    (kernel,) = program.kernels
    for changed, words in (
        (replace(kernel, name="other"), "the source has no kernel other"),
        (replace(kernel, arguments=("a",)), "kernel k takes 2 pointers, not 1"),
        (replace(kernel, arguments=("a", "b")), "there is no buffer b"),
        (replace(kernel, block=(2048, 1, 1)), "is launched with 2048 threads a block, and takes 1024"),
        (replace(kernel, grid=(1, 70000, 1)), "the limits are"),
    ):
        with pytest.raises(EmulationError, match=words):
            compile_program(replace(program, kernels=(changed,)))
    bounded = program.source.replace("__global__ void k", "__global__ void __launch_bounds__(16) k")
    with pytest.raises(EmulationError, match="is launched with 32 threads a block, and takes 16"):
        compile_program(replace(program, source=bounded))


def test_arrays_that_are_not_the_inputs() -> None:
    emulated = compile_program(by_hand("out[0] = 0;"))
    with pytest.raises(InternalError, match="inputs are"):
        emulated.run({})
    with pytest.raises(InternalError, match="in place of float32"):
        emulated.run({"a": np.zeros(3, np.float32)})
