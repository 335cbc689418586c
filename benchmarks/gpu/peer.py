"""Times what PyTorch calls for the same cases on the same data: cuBLAS and cuDNN. `python peer.py SESSION`.

Needs torch and numpy; data and stopwatch are those of the worker in the session. Each case becomes a line of
`peers.jsonl`. PyTorch stores results of float16 in float16, also where ours are stored in float32.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Call = Callable[[], Any]

_SPATIAL = {"conv1d": "w", "conv2d": "hw", "conv2d_dilated": "hw", "depthwise_conv2d": "hw", "conv3d": "dhw"}
_SIDES = {"d": ("front", "back"), "h": ("top", "bottom"), "w": ("left", "right")}
_TRANSPOSED = "conv2d_transposed"
_BUDGET = 0.25  # seconds for a timing


class NoPeerError(Exception):
    """PyTorch has nothing for a case."""


def main(session: Path) -> None:
    """Times all cases that have no line yet."""
    sys.path.insert(0, str(session / "worker.pyz"))
    path = session / "peers.jsonl"
    known = {json.loads(line).get("case") for line in path.read_text().splitlines()} if path.exists() else set()
    try:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("torch finds no GPU")
    except ImportError as error:
        path.write_text(json.dumps({"missing": str(error)}) + "\n")
        return
    stopwatch = stopwatch_of(torch)
    for case in json.loads((session / "session.json").read_text())["cases"]:
        if case["case"] not in known:
            row = {"case": case["case"], "torch": torch.__version__, "device": torch.cuda.get_device_name(0)}
            try:
                row.update(measure(torch, "cuda", case, session, stopwatch.times))
            except (NoPeerError, RuntimeError) as error:  # the latter is how torch says no
                row["error"] = str(error).splitlines()[0]
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def stopwatch_of(torch: Any) -> Any:
    """The worker's stopwatch on torch's stream."""
    from worker.timing import Stopwatch

    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    flushed = torch.empty(2 * l2, dtype=torch.int8, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")

    def seconds() -> float:
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    return Stopwatch(flushed.zero_, begin.record, end.record, seconds, _BUDGET)


def measure(torch: Any, device: str, case: Json, session: Path, times: Callable[[Call], tuple[Json, Json]]) -> Json:
    """The peer's times for a case, and what is wrong with its result, if anything is."""
    from worker.data import compare

    folder = session / case["case"]
    jobs = json.loads((folder / "jobs.json").read_text())
    tensors = {
        one["name"]: tensor(torch, device, one, jobs, folder) for one in jobs["buffers"] if one["use"] == "input"
    }
    name, call, back = called(torch, case, tensors)
    result = back(call()).contiguous().reshape(-1)
    numbers = result.cpu().float() if result.dtype.is_floating_point else result.cpu()
    (expected,) = jobs["cases"][0]["results"].values()
    wrong, worst = compare(numbers.numpy(), expected, folder)
    cold, warm = times(call)
    return {"what": name, "cold": cold, "warm": warm, "worst": worst, "wrong": wrong}


def tensor(torch: Any, device: str, said: Json, jobs: Json, folder: Path) -> Any:
    """An input of the first case."""
    from math import prod

    import numpy as np
    from worker.data import drawn, numbers, stored

    given = jobs["cases"][0]["inputs"][said["name"]]
    if given["draw"]:
        draw = given["draw"]
        elements = stored(drawn(draw["seed"], prod(said["shape"]), draw["low"], draw["high"]), said["storage"])
    else:
        elements = np.load(folder / given["file"])
    array = numbers(elements, said["storage"]).reshape(said["shape"])
    return torch.from_numpy(np.ascontiguousarray(array)).to(device, getattr(torch, said["storage"]))


def called(torch: Any, case: Json, tensors: dict[str, Any]) -> tuple[str, Call, Callable[[Any], Any]]:
    """The name of a function, a call of it, and what brings its result into our layout."""
    kind = case["operator"]
    if case["epilogue"]:
        raise NoPeerError("epilogues are several calls")
    first, second = tensors.values()
    if first.dtype == torch.int8:
        if kind != "gemm":
            raise NoPeerError(f"no {kind} of int8")
        return "torch._int_mm", lambda: torch._int_mm(first, second), lambda result: result
    if kind in ("gemm", "batch_matmul"):
        return "torch.matmul", lambda: torch.matmul(first, second), lambda result: result
    if kind == "gemv":
        return "torch.mv", lambda: torch.mv(first, second), lambda result: result
    if kind == "scan":
        return "torch.matmul", lambda: torch.matmul(first, second.T), lambda result: result
    return convolution(torch, case, first, second)


def convolution(torch: Any, case: Json, x: Any, weight: Any) -> tuple[str, Call, Callable[[Any], Any]]:
    """A convolution: tensors become views of torch's order of axes, in the memory layout that they have."""
    kind, shape = case["operator"], case["shape"]
    spatial = "hw" if kind == _TRANSPOSED else _SPATIAL.get(kind)
    if spatial is None:
        raise NoPeerError(f"no {kind}")
    stride, dilation = (tuple(_one(shape, name, axis) for axis in spatial) for name in ("stride", "dilation"))
    padding = []
    for axis in spatial:
        before, after = (shape[f"padding_{side}"] for side in _SIDES[axis])
        if before != after:
            raise NoPeerError("padding differs from side to side")
        padding.append(before)
    groups = int(shape.get("groups", 1))
    last = case["layout"] == "channels-last"
    if kind == "depthwise_conv2d":
        groups = int(x.shape[3] if last else x.shape[1])
        weight = weight.unsqueeze(2 if last else 1)  # one input channel a group
        if last:
            weight = weight.permute(3, 2, 0, 1)
    elif last:
        channels = (2, 3) if kind == _TRANSPOSED else (-1, -2)
        axes = range(len(spatial))
        weight = weight.permute(*(one % weight.dim() for one in channels), *axes)
    if last:
        x = x.movedim(-1, 1)
        form = {2: torch.channels_last, 3: torch.channels_last_3d}.get(len(spatial), torch.contiguous_format)
        weight = weight.contiguous(memory_format=form)
    else:
        weight = weight.contiguous()
    torch.backends.cudnn.benchmark = True  # lets cuDNN look for its best
    options = {"stride": stride, "padding": tuple(padding), "dilation": dilation, "groups": groups}
    name = f"conv{len(spatial)}d"
    if kind == _TRANSPOSED:
        name = "conv_transpose2d"
        options["output_padding"] = tuple(shape[f"output_padding_{axis}"] for axis in spatial)
    function = getattr(torch.nn.functional, name)

    def back(result: Any) -> Any:
        return result.movedim(1, -1) if last else result

    return f"torch.nn.functional.{name}", lambda: function(x, weight, **options), back


def _one(shape: Json, name: str, axis: str) -> int:
    return int(shape[f"{name}_{axis}"] if f"{name}_{axis}" in shape else shape[name])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
