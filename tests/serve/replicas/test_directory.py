"""The choice among replicas, against a model that remembers everything."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from optc.serve.replicas.block_changes import Changes
from optc.serve.replicas.directory import ANSWER, LACKING, Directory, Ticket

SIZE = 8
#: Prompts: prefixes of three texts of ten blocks. A block's hash names its text and place.
TEXTS = st.tuples(st.integers(0, 2), st.integers(0, 10))
NAMES = st.sampled_from(["a", "b", "c"])


def blocks(text: int, count: int) -> tuple[int, ...]:
    return tuple(100 * text + place for place in range(count))


@dataclass
class Model:
    """A replica as it should be known."""

    told: set[int] = field(default_factory=set)
    tickets: list[tuple[Ticket, tuple[int, ...]]] = field(default_factory=list)
    prefill: dict[int, int] = field(default_factory=dict)  # by the ticket's id
    left: list[list[int]] = field(default_factory=list)  # a hash, and reports to come

    @property
    def has(self) -> set[int]:
        coming = {block for _, hashes in self.tickets for block in hashes}
        return self.told | coming | {block for block, _ in self.left}

    def lacking(self, hashes: tuple[int, ...], tokens: int) -> int:
        have = self.has
        count = next((n for n, one in enumerate(hashes) if one not in have), len(hashes))
        return tokens - SIZE * count

    def cost(self, hashes: tuple[int, ...], tokens: int) -> int:
        waiting = sum(self.prefill[id(ticket)] for ticket, _ in self.tickets)
        return waiting + ANSWER * len(self.tickets) + LACKING * self.lacking(hashes, tokens)


class Replicas(RuleBasedStateMachine):
    """Requests, reports and deaths in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Directory(SIZE)
        self.models: dict[str, Model] = {}
        self.numbers = dict.fromkeys("abc", 0)
        self.running: list[Ticket] = []

    @rule(
        name=NAMES, stored=st.sets(st.integers(0, 9)), text=st.integers(0, 2), whole=st.booleans()
    )
    def report(self, name: str, stored: set[int], text: int, whole: bool) -> None:
        found = {100 * text + place for place in stored}
        model = self.models.setdefault(name, Model())
        removed = set() if whole else model.told - found
        self.numbers[name] += 1
        changes = Changes(self.numbers[name], tuple(found), tuple(removed), whole)
        self.directory.heard(name, changes)
        model.told = found
        for one in model.left:
            one[1] -= 1
        model.left = [one for one in model.left if one[1]]

    @precondition(lambda self: self.models)
    @rule(prompt=TEXTS, more=st.integers(1, SIZE))
    def send(self, prompt: tuple[int, int], more: int) -> None:
        hashes, tokens = blocks(*prompt), SIZE * prompt[1] + more
        order = self.directory.order(hashes, tokens)
        costs = [self.models[name].cost(hashes, tokens) for name in order]
        assert costs == sorted(costs)
        assert sorted(order) == sorted(self.models)
        model = self.models[order[0]]
        lacking = model.lacking(hashes, tokens)
        ticket = self.directory.send(order[0], hashes, tokens)
        model.prefill[id(ticket)] = lacking
        model.tickets.append((ticket, hashes))
        self.running.append(ticket)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), name=NAMES)
    def move(self, data: st.DataObject, name: str) -> None:
        ticket = data.draw(st.sampled_from(self.running))
        before = self.where(ticket)
        self.directory.move(ticket, name)
        if before == name:
            return
        self.take(ticket)
        if (model := self.models.get(name)) is not None:
            model.prefill[id(ticket)] = model.lacking(tuple(ticket.hashes), ticket.tokens)
            model.tickets.append((ticket, tuple(ticket.hashes)))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.running))
        self.directory.began(ticket)
        for model in self.models.values():
            if id(ticket) in model.prefill:
                model.prefill[id(ticket)] = 0

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.running))
        name, computed = self.where(ticket), not ticket.prefill
        self.directory.ended(ticket)
        self.running.remove(ticket)
        self.take(ticket)
        if name and computed:
            model = self.models[name]
            kept = [one for one in model.left if one[0] not in ticket.hashes]
            model.left = kept + [[block, 2] for block in ticket.hashes]

    @rule(name=NAMES)
    def lose(self, name: str) -> None:
        self.directory.lose(name)
        self.models.pop(name, None)

    @rule(names=st.sets(NAMES))
    def keep(self, names: set[str]) -> None:
        self.directory.keep(names)
        self.models = {name: one for name, one in self.models.items() if name in names}

    @invariant()
    def known(self) -> None:
        assert set(self.directory.replicas) == set(self.models)
        assert self.directory.numbers == {name: self.numbers[name] for name in self.models}

    def teardown(self) -> None:
        for ticket in self.running:
            self.directory.ended(ticket)
        for name in self.models:
            one = self.directory._known[name]
            assert (one.work, one.tickets, dict(one.coming)) == (0, set(), {})

    def where(self, ticket: Ticket) -> str:
        found = [n for n, one in self.models.items() if any(t is ticket for t, _ in one.tickets)]
        return found[0] if found else ""

    def take(self, ticket: Ticket) -> None:
        for model in self.models.values():
            model.tickets = [pair for pair in model.tickets if pair[0] is not ticket]


Replicas.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestReplicas = pytest.mark.filterwarnings("ignore")(Replicas.TestCase)


def heard(directory: Directory, name: str, *stored: int) -> None:
    directory.heard(name, Changes(len(stored), stored, whole=True))


def test_the_longest_prefix_is_chosen() -> None:
    directory = Directory(SIZE)
    heard(directory, "a", *blocks(0, 3))
    heard(directory, "b", *blocks(0, 5))
    heard(directory, "c", *blocks(1, 9))
    assert directory.order(blocks(0, 9), 80) == ["b", "a", "c"]
    assert directory.order(blocks(1, 9), 80)[0] == "c"


def test_a_gap_ends_a_prefix() -> None:
    directory = Directory(SIZE)
    heard(directory, "a", *blocks(0, 2))
    heard(directory, "b", *blocks(0, 9)[1:])
    assert directory.order(blocks(0, 9), 80)[0] == "a"


def test_new_prefixes_go_where_few_are() -> None:
    directory = Directory(SIZE)
    heard(directory, "a", *blocks(0, 3))
    heard(directory, "b")
    assert directory.order(blocks(1, 4), 40)[0] == "b"


def test_a_prefix_leaves_a_busy_replica_at_last() -> None:
    directory = Directory(SIZE)
    heard(directory, "a", *blocks(0, 8))
    heard(directory, "b")
    places = []
    for _ in range(12):
        name = directory.order(blocks(0, 8), 65)[0]
        directory.began(directory.send(name, blocks(0, 8), 65))
        places.append(name)
    # 64 tokens twice are 8 answers of 16.
    assert places[:8] == ["a"] * 8
    assert places[9] == "b"
    assert places.count("b") >= 2


def test_what_an_ended_request_left_is_believed_until_it_is_told() -> None:
    directory = Directory(SIZE)
    heard(directory, "a")
    heard(directory, "b", 999)
    ticket = directory.send("b", blocks(0, 4), 33)
    directory.began(ticket)
    directory.ended(ticket)
    assert directory.order(blocks(0, 4), 33)[0] == "b"
    heard(directory, "b", 999)  # it was on its way
    assert directory.order(blocks(0, 4), 33)[0] == "b"
    heard(directory, "b", 999)  # it was evicted
    assert directory.order(blocks(0, 4), 33)[0] == "a"


def test_what_was_never_computed_is_not_believed() -> None:
    directory = Directory(SIZE)
    heard(directory, "a")
    heard(directory, "b", 999)
    directory.ended(directory.send("b", blocks(0, 4), 33))
    assert directory.order(blocks(0, 4), 33)[0] == "a"


def test_without_replicas_there_is_no_order() -> None:
    directory = Directory(SIZE)
    assert directory.order((), 5) == []
    ticket = directory.send("", (), 5)
    directory.move(ticket, "gone")
    directory.ended(ticket)
