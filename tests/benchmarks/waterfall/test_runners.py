"""How requests of the waterfall are served and counted, with a runner that only remembers."""

from __future__ import annotations

from benchmarks.peers.subjects import folder_subject
from benchmarks.waterfall.runners import seconds_alone, seconds_together
from benchmarks.waterfall.steps import STEPS
from benchmarks.waterfall.workload import BATCH, Request, Workload
from tests.benchmarks.quality_per_byte.engines.support import PYCODE


class Remembering:
    """Notes the lengths that it was asked for, call by call."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def generate(self, requests: list[Request]) -> None:
        self.calls.append([request.new for request in requests])


REQUESTS = [Request([1, 2], 10 + number) for number in range(2 * BATCH)]


def test_in_a_static_batch_every_request_is_computed_up_to_the_longest() -> None:
    one = Remembering()
    seconds_together(one, REQUESTS, continuous=False)
    assert one.calls == [[10 + BATCH - 1] * BATCH, [10 + 2 * BATCH - 1] * BATCH]


def test_with_continuous_batching_each_has_its_own_length() -> None:
    one = Remembering()
    seconds_together(one, REQUESTS, continuous=True)
    assert one.calls == [[request.new for request in REQUESTS]]


def test_alone_they_come_one_after_the_other() -> None:
    one = Remembering()
    seconds_alone(one, REQUESTS[:3])
    assert one.calls == [[10], [11], [12]]


def test_prompts_begin_alike_and_go_on_differently() -> None:
    workload = Workload(shared=20, own=5, shortest=4, longest=9)
    requests = workload.of(folder_subject(PYCODE))
    assert requests == workload.of(folder_subject(PYCODE)), "the same ones every time"
    assert len(requests) == workload.requests
    assert {tuple(request.prompt[:20]) for request in requests} == {tuple(requests[0].prompt[:20])}
    assert len({tuple(request.prompt[20:]) for request in requests}) > workload.requests / 2
    assert {len(request.prompt) for request in requests} == {25}
    lengths = {request.new for request in requests}
    assert min(lengths) >= 4
    assert max(lengths) == 9
    assert len(lengths) > 1


def test_each_step_has_what_the_one_before_has() -> None:
    assert STEPS[0].variant is None
    artifacts = [step.variant for step in STEPS[1:]]
    assert None not in artifacts
    int8 = artifacts.index(STEPS[-1].variant)
    assert set(artifacts[int8:]) == {STEPS[-1].variant}, "from int8 KV on the artifact is the same"
    assert [step.continuous for step in STEPS] == sorted(step.continuous for step in STEPS)
    for before, after in zip(STEPS[-3:], STEPS[-2:], strict=False):
        kept = {k: v for k, v in before.serving.items() if v}
        assert kept.items() <= after.serving.items()
