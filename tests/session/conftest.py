"""The cases of the sessions under test, their recorded devices, and a session that nothing disturbed."""

from __future__ import annotations

import pytest

from heron_asp.measure.replay import ReplayDevice
from heron_asp.session.cases import Member
from heron_asp.target import Target
from tests.conftest import make_task
from tests.search.devices import invented
from tests.session.recorded import SHAPES, WEIGHTS, recorded, start


@pytest.fixture(scope="module")
def members(zen4: Target) -> list[Member]:
    return [Member(name, make_task(zen4, **shape), WEIGHTS[name], (name,)) for name, shape in SHAPES.items()]


@pytest.fixture(scope="module")
def devices(members: list[Member]) -> dict[str, ReplayDevice]:
    return {one.name: invented(one.task) for one in members}


@pytest.fixture(scope="module")
def whole(
    members: list[Member], devices: dict[str, ReplayDevice], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, object]:
    path = tmp_path_factory.mktemp("whole") / "s"
    start(members, devices, path)
    return recorded(path)
