"""How many replicas there should be."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.params import SamplingParams
from optc.serve.on_ray.deployment import scaled
from optc.serve.replicas.replica import Replica
from optc.serve.replicas.scaling import USED, wanted
from tests.serve.replicas.local import toy
from tests.serve.toys import WaitingExecutable


@pytest.mark.parametrize(
    ("loads", "count"),
    [([], 1), ([0.0, 0.0], 1), ([0.75], 1), ([0.8], 2), ([3.0], 4), ([0.75] * 3, 3)],
)
def test_they_are_used_in_part(loads: list[float], count: int) -> None:
    assert wanted(loads) == count


@given(st.lists(st.floats(0, 50), max_size=20))
def test_no_more_are_used_than_should_be(loads: list[float]) -> None:
    count = wanted(loads)
    assert count >= 1
    assert sum(loads) / count <= USED + 1e-6
    assert count == 1 or sum(loads) / (count - 1) > USED - 1e-6


def test_a_load_is_that_of_the_engine() -> None:
    steps = WaitingExecutable()
    engines = []

    def opened(log: object) -> object:
        engines.append(toy(executable=lambda: steps)(log))  # type: ignore[arg-type]
        return engines[-1]

    replica = Replica("r", opened, {})  # type: ignore[arg-type]
    assert replica.load() == 0
    handles = [engines[0].submit("hi", SamplingParams(max_tokens=5)) for _ in range(6)]
    steps.let_go(1)
    while engines[0].metrics().running + engines[0].metrics().waiting < 6:
        pass
    assert replica.load() == 6 / 4
    steps.let_go()
    for handle in handles:
        handle.result(60)
    replica.check()
    replica.close()


def test_rays_policy_is_this_one() -> None:
    loads = {"load": {"a": 1.0, "b": 0.8}}
    assert scaled(SimpleNamespace(aggregated_metrics=loads, target_num_replicas=2)) == (3, {})
    assert scaled(SimpleNamespace(aggregated_metrics={}, target_num_replicas=2)) == (2, {})
