"""One call of a proposer for all requests of a step; several proposers in order."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import Mock

import numpy as np
import pytest

from optc.runtime.kv.kv_blocks import BlockTables
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.scheduling.scheduler import Scheduler
from optc.runtime.speculative.planning.controller import Draftable, Fixed, StepTimes
from optc.runtime.speculative.proposer import DraftOutcome, DraftRequest, Drafts
from optc.runtime.speculative.speculator import DraftSource, Speculator


class Scripted:
    """Drafts what a table says, by request id; remembers what it was asked."""

    def __init__(self, tokens: dict[int, list[int]]) -> None:
        self.tokens = tokens
        self.asked: list[dict[int, int]] = []
        self.forgotten: list[int] = []

    def propose(self, wanted: Sequence[DraftRequest]) -> list[Drafts]:
        self.asked.append({request.id: count for request, count in wanted})
        return [Drafts(self.tokens.get(r.id, [])[:count]) for r, count in wanted]

    def forget(self, request: Request) -> None:
        self.forgotten.append(request.id)


class PerRequest:
    """Its own number of drafts for each request; remembers what it is told."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self.numbers = numbers
        self.asked: list[Draftable] = []
        self.learned: list[tuple[int, int, int]] = []
        self.observed: list[StepTimes] = []
        self.forgotten: list[int] = []
        self.is_ready = True

    def ready(self) -> bool:
        return self.is_ready

    def counts(self, requests: Sequence[Draftable], sequences: int) -> list[int]:
        self.asked += requests
        return [self.numbers[request.id] for request in requests]

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        self.learned.append((request_id, drafted, accepted))

    def observe(self, step: StepTimes) -> None:
        self.observed.append(step)

    def forget(self, request_id: int) -> None:
        self.forgotten.append(request_id)


def request(number: int, *, computed: int = 3, room: int = 20) -> Request:
    made = Request(
        number,
        CompletionInput(
            np.arange(4, dtype=np.int32), SamplingParams(), seed=0, index=0, stream=None
        ),
        max_length=5 + room,
        tables=BlockTables.empty(1),
        metrics=RequestMetrics(0.0),
    )
    made.num_computed = computed
    return made


def drafted(requests: Sequence[Request]) -> list[list[int]]:
    return [r.path[r.num_tokens :].tolist() for r in requests]


def test_all_decoding_requests_are_drafted_for_in_one_call() -> None:
    running = [request(0), request(1, computed=1), request(2), request(3, room=2), request(4)]
    proposer = Scripted({0: [7, 8, 9], 1: [7], 2: [5], 3: [1, 2, 3], 4: []})
    Speculator([DraftSource(proposer, Fixed(3))]).propose(running)
    assert proposer.asked == [{0: 3, 2: 3, 3: 2, 4: 3}], "1 is in its prefill, 3 has room for 2"
    assert drafted(running) == [[7, 8, 9], [], [5], [1, 2], []]


def test_each_request_gets_its_own_number() -> None:
    running = [request(0), request(1), request(2)]
    proposer = Scripted({i: [4] * 9 for i in range(3)})
    controller = PerRequest({0: 2, 1: 0, 2: 5})
    Speculator([DraftSource(proposer, controller, pending=lambda r: 7 + r.id)]).propose(running)
    assert controller.asked == [Draftable(i, 20, 7 + i) for i in range(3)]
    assert proposer.asked == [{0: 2, 2: 5}]
    assert [len(tokens) for tokens in drafted(running)] == [2, 0, 5]


def test_the_first_source_that_has_something_drafts() -> None:
    running = [request(0), request(1), request(2)]
    first, second = Scripted({0: [1, 2]}), Scripted({0: [9], 1: [3]})
    speculator = Speculator([DraftSource(first, Fixed(4)), DraftSource(second, Fixed(1))])
    speculator.propose(running)
    assert second.asked == [{1: 1, 2: 1}]
    assert drafted(running) == [[1, 2], [3], []]
    speculator.propose([request(0)])
    assert len(second.asked) == 1, "nobody is left to ask for"


def test_in_a_plain_step_nothing_is_asked() -> None:
    running = [request(0)]
    proposer, controller = Scripted({0: [1]}), PerRequest({0: 1})
    controller.is_ready = False
    source = DraftSource(proposer, controller, grades=lambda r: pytest.fail("asked for its grades"))
    speculator = Speculator([source])
    assert not speculator.propose(running)
    assert controller.asked == []
    assert proposer.asked == []
    controller.is_ready, source.grades = True, None
    assert speculator.propose(running)


def test_requests_that_a_source_has_nothing_for_are_not_planned() -> None:
    running = [request(0), request(1), request(2)]
    proposer, controller = Scripted({i: [4] * 9 for i in range(3)}), PerRequest({0: 2, 2: 3})
    grades = {0: [3, 3], 1: [], 2: [1, 2, 2]}
    Speculator([DraftSource(proposer, controller, grades=lambda r: grades[r.id])]).propose(running)
    assert controller.asked == [Draftable(0, 20, 1, [3, 3]), Draftable(2, 20, 1, [1, 2, 2])]
    assert proposer.asked == [{0: 2, 2: 3}]


def test_old_drafts_do_not_stay() -> None:
    running = [request(0)]
    proposer = Scripted({0: [1, 2]})
    speculator = Speculator([DraftSource(proposer, Fixed(4))])
    speculator.propose(running)
    proposer.tokens = {}
    speculator.propose(running)
    assert drafted(running) == [[]]


def test_a_source_learns_from_its_own_drafts_only() -> None:
    running = [request(0), request(1)]
    controllers = PerRequest({0: 4, 1: 4}), PerRequest({0: 4, 1: 4})
    proposers = Scripted({0: [1, 2]}), Scripted({1: [3]})
    clock = iter([10.0, 11.0, 20.0, 22.0])  # before and after each source
    speculator = Speculator(
        [DraftSource(p, c) for p, c in zip(proposers, controllers, strict=True)],
        lambda: next(clock),
    )
    speculator.propose(running)
    speculator.learn(running[0], DraftOutcome(2, (0, 1), [1, 2, 5]))
    speculator.learn(running[1], DraftOutcome(1, (), [4, 4]))
    speculator.observe_step(2, 5, 9.0)
    assert [c.learned for c in controllers] == [[(0, 2, 2)], [(1, 1, 0)]]
    # Of nine seconds the first source took one and the second two.
    assert controllers[0].observed == [StepTimes(2, 5, 7.0, 1.0, 2, 2)]
    assert controllers[1].observed == [StepTimes(2, 5, 8.0, 2.0, 1, 0)]


def test_an_ended_request_is_forgotten_everywhere() -> None:
    running = [request(0)]
    proposers = Scripted({0: [1]}), Scripted({})
    controllers = PerRequest({0: 1}), PerRequest({0: 1})
    sources = [DraftSource(p, c) for p, c in zip(proposers, controllers, strict=True)]
    speculator = Speculator(sources)
    speculator.propose(running)
    speculator.forget(running[0])
    speculator.forget(request(1))
    assert [controller.forgotten for controller in controllers] == [[0, 1], [0, 1]]
    assert [proposer.forgotten for proposer in proposers] == [[0, 1], [0, 1]]


def test_a_source_is_told_of_rows_of_its_own_verifications_and_of_the_end() -> None:
    rows: list[object] = []
    learned: list[int] = []
    released: list[str] = []

    class Learner:
        def learn(self, request: Request, checked: DraftOutcome) -> None:
            learned.append(request.id)

    plain = DraftSource(Scripted({0: [8]}), PerRequest({0: 1, 1: 1}))
    source = DraftSource(
        Scripted({1: [7]}),
        PerRequest({0: 1, 1: 1}),
        learner=Learner(),
        note_rows=rows.append,
        release=lambda: released.append("source"),
    )
    assert not Speculator([plain]).notes_rows
    speculator = Speculator([plain, source])
    assert speculator.notes_rows
    running = [request(0), request(1)]
    assert speculator.propose(running)
    for each in running:
        speculator.learn(each, DraftOutcome(1, (0,), [7, 9]))
    assert learned == [1], "the other's drafts were none of this source"
    assert (plain.drafted, plain.accepted, source.drafted, source.accepted) == (1, 1, 1, 1)
    speculator.note_rows({0: 3})
    assert rows == [{0: 3}]
    speculator.close()
    assert released == ["source"]


def test_sources_that_read_requests_are_told_whose() -> None:
    told: list[tuple[str, object]] = []
    scheduler = Mock(spec=Scheduler)
    plain, *others = (
        DraftSource(Scripted({}), Fixed(1)),
        DraftSource(Scripted({}), Fixed(1), attach=lambda given: told.append(("a", given))),
        DraftSource(Scripted({}), Fixed(1), attach=lambda given: told.append(("b", given))),
    )
    Speculator([plain, *others]).attach(scheduler)
    assert told == [("a", scheduler), ("b", scheduler)]


def test_sources_that_read_steps_are_shown_each() -> None:
    seen: list[object] = []
    step: list[Chunk[Request]] = [Chunk(request(0), 0, 1)]
    plain = DraftSource(Scripted({}), Fixed(1))
    reads = DraftSource(Scripted({}), Fixed(1), note_step=seen.append)
    Speculator([plain, reads]).note_step(step)
    assert seen == [step]


def test_a_source_that_is_not_ready_is_passed_over() -> None:
    first, second = PerRequest({0: 1}), PerRequest({0: 1})
    first.is_ready = False
    speculator = Speculator(
        [DraftSource(Scripted({0: [5]}), first), DraftSource(Scripted({0: [6]}), second)]
    )
    asked = request(0)
    assert speculator.propose([asked])
    assert drafted([asked]) == [[6]]


def test_a_fresh_source_has_drafted_nothing() -> None:
    source = DraftSource(Scripted({}), Fixed(1))
    assert (source.seconds, source.drafted, source.accepted) == (0, 0, 0)


def test_drafts_of_the_step_before_are_forgotten() -> None:
    proposer = Scripted({0: [5]})
    speculator = Speculator([DraftSource(proposer, PerRequest({0: 1}))])
    asked = request(0)
    assert speculator.propose([asked])
    proposer.tokens.clear()
    assert not speculator.propose([asked])
    assert drafted([asked]) == [[]]


def test_a_request_without_room_is_not_asked_for() -> None:
    controller = PerRequest({0: 1, 1: 1})
    full, free = request(0, room=0), request(1, room=1)
    Speculator([DraftSource(Scripted({0: [5], 1: [6]}), controller)]).propose([full, free])
    assert [one.id for one in controller.asked] == [1]
