"""TVM's RPC on loopback, with a CPU for the device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from heron_asp.backends.cuda.rpc import RpcRunner
from heron_asp.errors import HeronError, MissingError

for needed in ("psutil", "cloudpickle", "tornado"):
    pytest.importorskip(needed, reason="pip install 'heron-asp[rpc]'")

SHAPE = (16, 16)


@pytest.fixture(scope="module")
def runner() -> Iterator[RpcRunner]:
    from tvm import rpc
    from tvm.rpc.tracker import Tracker

    tracker = Tracker("127.0.0.1", port=19190, port_end=19290, silent=True)
    where = ("127.0.0.1", tracker.port)
    server = rpc.Server("127.0.0.1", port=19300, port_end=19400, key="cpu", tracker_addr=where, silent=True)
    try:
        yield RpcRunner(where, "cpu", "cpu")
    finally:
        server.terminate()
        tracker.terminate()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tvm
    from tvm import te

    x = te.placeholder(SHAPE, "float32", name="x")
    y = te.compute(SHAPE, lambda i, j: x[i, j] * 2 + 1, name="y")
    function = te.create_prim_func([x, y]).with_attr("global_symbol", "affine")
    file = tmp_path_factory.mktemp("rpc") / "affine.so"
    tvm.compile(tvm.IRModule({"affine": function}), target={"kind": "llvm"}).export_library(str(file))
    return file


def test_a_library_is_run_and_timed_there(runner: RpcRunner, library: Path) -> None:
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    found = runner.run(library, "affine", [x], np.full(SHAPE, np.nan, np.float32), repeats=3)
    np.testing.assert_allclose(found.output, x * 2 + 1, rtol=1e-6)
    assert len(found.seconds) == 3
    assert min(found.seconds) > 0


def test_what_fails_there_is_told_here(runner: RpcRunner, library: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    with pytest.raises(HeronError, match=r"RPC server 'cpu', broken\.so: "):
        runner.run(broken, "affine", [], np.zeros(SHAPE, np.float32))
    with pytest.raises(HeronError, match=r"RPC server 'cpu', affine\.so: "):
        runner.run(library, "absent", [], np.zeros(SHAPE, np.float32))


def test_no_tracker_and_no_server(runner: RpcRunner, library: Path) -> None:
    output = np.zeros(SHAPE, np.float32)
    with pytest.raises(HeronError, match=r"no server 'gpu' at 127\.0\.0\.1:\d+: announced are cpu"):
        RpcRunner(runner.tracker, "gpu").run(library, "affine", [], output)
    with pytest.raises(HeronError, match=r"no server 'cpu' at 127\.0\.0\.1:1: "):
        RpcRunner(("127.0.0.1", 1), "cpu").run(library, "affine", [], output)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    monkeypatch.setitem(sys.modules, "tvm.rpc", None)
    monkeypatch.delattr("tvm.rpc", raising=False)
    with pytest.raises(MissingError, match="TVM RPC needs"):
        RpcRunner(("127.0.0.1", 1), "cpu").run(library, "affine", [], np.zeros(SHAPE, np.float32))
