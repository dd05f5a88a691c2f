"""Answers that were as fast as they should be."""

from __future__ import annotations

import pytest

from optc.runtime.params import SamplingParams
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.serve.objectives import Objectives
from tests.serve.conftest import MakeApi
from tests.serve.test_metrics import samples
from tests.serve.toys import FailingExecutable, WaitingExecutable, toy_engine


@pytest.mark.parametrize(
    ("objectives", "times", "met"),
    [
        (Objectives(0.2), [1.1, 9.0], True),
        (Objectives(0.2), [1.3, 1.4], False),
        (Objectives(0.2), [], False),
        (Objectives(None, 0.5), [3.0, 3.4, 3.8], True),
        (Objectives(None, 0.5), [3.0, 3.4, 4.0], False),
        (Objectives(None, 0.5), [3.0], True),
        (Objectives(0.2, 0.5), [1.1, 1.7], False),
    ],
)
def test_every_bound_holds(objectives: Objectives, times: list[float], met: bool) -> None:
    assert objectives.met(RequestMetrics(1.0, token_times_s=times)) is met


def test_each_text_counts(make_api: MakeApi) -> None:
    from optc.serve.settings import HTTPSettings

    api = make_api(settings=HTTPSettings(itl_s=100.0))
    assert "optc:requests_with_objectives_total" in samples(api)
    api.post("/v1/completions", prompt=["a", "b"], n=2, max_tokens=3)
    api.engine.close()  # its thread counts
    assert api.service.objectives.counted(api.engine) == (4, 4)


def test_without_objectives_there_is_no_counter(make_api: MakeApi) -> None:
    assert not [name for name in samples(make_api()) if "objectives" in name]


def test_failed_answers_are_late_and_cancelled_ones_do_not_count() -> None:
    objectives = Objectives(100.0)
    with toy_engine(lambda: FailingExecutable(1)) as failing:
        handle = failing.submit([5, 6], SamplingParams(max_tokens=3, ignore_eos=True))
        objectives.watch(failing, handle)
        while not handle.done:
            pass
    assert objectives.counted(failing) == (0, 1)
    executable = WaitingExecutable()
    with toy_engine(lambda: executable) as waiting:
        handle = waiting.submit([5, 6], SamplingParams(max_tokens=3, ignore_eos=True))
        objectives.watch(waiting, handle)
        handle.cancel()
        executable.let_go()
        handle.result()
    assert objectives.counted(waiting) == (0, 0)
