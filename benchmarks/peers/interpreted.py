"""Peers that are called from Python: onnxruntime and NumPy. A call costs microseconds before it computes anything."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np
from peers.native import Array, Clock, Side
from peers.workload import Workload

from heron_asp.errors import HeronError, MissingError

ONNXRUNTIME = "onnxruntime"
NUMPY = "numpy"
FROM_PYTHON = "called from Python"
_LARGEST = 255 * 128  # of a product of a u8 and an s8
_OPSET, _IR = 17, 8


@dataclass
class PythonCall:
    """A call that Python makes and times.

    Attributes:
        name: of the side.
        function: one call.
        read: the result of the last call.
        implementation: what it calls.
        scaled: makes the result that a call should have from the exact one.
        tolerance: how far an element may be from it.
        kept: what the call uses.
    """

    name: str
    function: Callable[[], object]
    read: Callable[[], Array]
    implementation: str
    scaled: Callable[[Array], Array] = lambda exact: exact
    tolerance: float = 0.0
    kept: tuple[object, ...] = field(default=())

    def run(self) -> Array:
        """One call; its result."""
        self.function()
        return self.read()

    def seconds(self, calls: int) -> float:
        """Seconds of one call, over a block of calls."""
        begin = time.perf_counter()
        for _ in range(calls):
            self.function()
        return (time.perf_counter() - begin) / calls

    def expects(self, exact: Array) -> Array:
        """The result that a call should have, from the exact one."""
        return self.scaled(exact)


def numpy_side(workload: Workload, threads: int) -> Callable[[Clock, Array, Array], Side]:
    """NumPy's fastest way: float32 BLAS for a product (inexact above 2**24), cumsum for a scan."""

    def make(_: Clock, source: Array, weights: Array) -> PythonCall:
        if workload.windows:
            raise MissingError("numpy has no convolution")
        if workload.operator == "scan":
            return _cumsum(workload, source)
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            raise MissingError(
                "no threadpoolctl, which limits the threads of numpy", "pip install -e '.[peers]'"
            ) from None
        limits = threadpool_limits(threads, "blas")
        first, second = source.astype(np.float32), weights.astype(np.float32)
        a, b = (second, first) if workload.operator == "gemv" else (first, second)
        result = np.zeros(tuple(workload.result.values()), np.float32)
        rounding = 1e-5 * _LARGEST * sqrt(source.shape[-1])  # float32 rounds partial sums of so many products
        return PythonCall(
            NUMPY,
            lambda: np.matmul(a, b, out=result),
            lambda: result,
            f"float32 matmul, {FROM_PYTHON}",
            tolerance=rounding,
            kept=(limits,),
        )

    return make


def _cumsum(workload: Workload, source: Array) -> PythonCall:
    """A scan is the sums of the elements before each place; beyond the last element they do not change."""
    k, n = workload.shape["k"], workload.shape["n"]
    result = np.zeros((workload.shape["m"], max(n, k + 1)), np.int32)
    used = min(k, n - 1)

    def call() -> None:
        np.cumsum(source[:, :used], axis=1, dtype=np.int32, out=result[:, 1 : used + 1])
        if used + 1 < n:
            result[:, used + 1 :] = result[:, used : used + 1]

    return PythonCall(NUMPY, call, lambda: result[:, :n], f"cumsum, {FROM_PYTHON}")


def onnxruntime_side(workload: Workload, threads: int) -> Callable[[Clock, Array, Array], Side]:
    """Onnxruntime's integer products and quantised convolutions on bound buffers, constant weights packed by it."""

    def make(_: Clock, source: Array, weights: Array) -> PythonCall:
        try:
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
        except ImportError as error:
            raise MissingError(f"no {error.name}", "pip install -e '.[peers]'") from None
        if workload.transposed:
            raise MissingError("onnxruntime has no integer transposed convolution")
        if workload.windows:
            return _quantised_convolution(workload, threads, source, weights)
        return _integer_product(workload, threads, source, weights)

    return make


def _integer_product(workload: Workload, threads: int, source: Array, weights: Array) -> PythonCall:
    from onnx import helper, numpy_helper

    vector = workload.operator == "gemv"  # y = A x as the row x times the transpose of A
    a, b = (source[None], np.ascontiguousarray(weights.T)) if vector else (source, weights)
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    feeds, constants = {"a": a}, []
    if workload.constant:
        constants.append(numpy_helper.from_array(b, "b"))
    else:
        feeds["b"] = b
    result = np.zeros((*a.shape[:-1], b.shape[-1]), np.int32)
    call = _session(node, feeds, constants, result, threads)
    shape = tuple(workload.result.values())
    return PythonCall(
        ONNXRUNTIME, call, lambda: result.reshape(shape), f"MatMulInteger, {FROM_PYTHON}", kept=(feeds, result)
    )


def _quantised_convolution(workload: Workload, threads: int, source: Array, weights: Array) -> PythonCall:
    """QLinearConv, channels last: its results are u8, rounded and scaled, a quarter of the bytes that others write.

    The one with s32 results, ConvInteger, takes channels first and is more than ten times slower.
    """
    from onnx import helper, numpy_helper

    exact_range = _LARGEST * sqrt(np.prod(weights.shape[:-1]))  # about the largest sum of that many random products
    scale, zero = np.float32(exact_range / 128), np.uint8(128)
    kernel = np.ascontiguousarray(np.moveaxis(weights, [-1, -2], [0, 1]))
    constants = {
        "one": np.float32(1),
        "a_zero": np.uint8(0),
        "w": kernel,
        "w_zero": np.int8(0),
        "scale": scale,
        "y_zero": zero,
    }
    windows = workload.windows
    node = helper.make_node(
        "QLinearConv",
        ["a", "one", "a_zero", "w", "one", "w_zero", "scale", "y_zero"],
        ["y"],
        domain="com.microsoft",
        channels_last=1,
        group=workload.groups,
        kernel_shape=[window.kernel for window in windows],
        strides=[window.stride for window in windows],
        dilations=[window.dilation for window in windows],
        pads=[window.before for window in windows] + [window.after for window in windows],
    )
    result = np.zeros(tuple(workload.result.values()), np.uint8)
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    call = _session(node, {"a": source}, tensors, result, threads)
    return PythonCall(
        ONNXRUNTIME,
        call,
        lambda: result.astype(np.int32),
        f"QLinearConv with u8 results, {FROM_PYTHON}",
        scaled=lambda exact: np.clip(np.rint(exact / scale + zero), 0, 255).astype(np.int32),
        tolerance=1.0,  # it rounds a float32 product
        kept=(source, result),
    )


def _session(
    node: Any, feeds: dict[str, Array], constants: list[Any], result: Array, threads: int
) -> Callable[[], object]:
    """A call of a graph of one node on bound buffers.

    Raises:
        HeronError: onnxruntime has no such node.
    """
    import onnxruntime
    from onnx import helper

    def described(name: str, array: Array) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    inputs = [described(name, array) for name, array in feeds.items()]
    graph = helper.make_graph([node], "case", inputs, [described("y", result)], constants)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions are of many types
        raise HeronError(f"onnxruntime: {str(error).splitlines()[0][:300]}") from None
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    binding.bind_output("y", "cpu", 0, result.dtype.type, result.shape, result.ctypes.data)
    return lambda: session.run_with_iobinding(binding)
