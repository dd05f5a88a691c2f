"""`AdapterTable`: no slot is lost or given twice, whatever the order of calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.errors import RequestError
from optc.runtime.adapters.table import Adapter, AdapterTable
from optc.runtime.executable.adapter_spec import AdapterSpec

SPEC = AdapterSpec(3, 16, ())
NAMES = st.sampled_from("abcd")
ACTIONS = st.tuples(st.sampled_from(["load", "abandon", "unload", "take", "release"]), NAMES)


@given(st.lists(ACTIONS, max_size=60))
def test_any_order_of_calls(actions: list[tuple[str, str]]) -> None:
    table = AdapterTable(SPEC)
    loaded: dict[str, Adapter] = {}
    taken: list[Adapter] = []
    generations: set[int] = set()
    for action, name in actions:
        used = {a.slot for a in (*loaded.values(), *taken)}
        if action in ("load", "abandon"):
            if name in loaded or len(used) == SPEC.max:
                with pytest.raises(RequestError):
                    table.reserve(name)
                continue
            adapter = table.reserve(name)
            assert adapter.slot not in used
            assert adapter.generation not in generations
            generations.add(adapter.generation)
            if action == "load":
                table.publish(adapter)
                loaded[name] = adapter
            else:
                table.abandon(adapter)
        elif action == "release":
            if taken:
                table.release(taken.pop())
        elif name not in loaded:
            with pytest.raises(RequestError, match="no adapter"):
                table.take(name, 1) if action == "take" else table.unload(name)
        elif action == "take":
            assert table.take(name, 2) == loaded[name]
            taken += [loaded[name]] * 2
        else:
            table.unload(name)
            del loaded[name]
        assert table.names == tuple(sorted(loaded))


def test_messages() -> None:
    table = AdapterTable(AdapterSpec(1, 16, ()))
    table.publish(table.reserve("sql"))
    with pytest.raises(RequestError, match="an adapter 'sql' is loaded already"):
        table.reserve("sql")
    with pytest.raises(RequestError, match="all 1 places for adapters are in use") as caught:
        table.reserve("other")
    assert caught.value.hint == "unload one, or compile with a larger --adapters max"
    with pytest.raises(RequestError, match="no adapter 'x' is loaded") as caught:
        table.take("x", 1)
    assert caught.value.hint == "loaded: sql"
    with pytest.raises(RequestError, match="the artifact takes no adapters"):
        AdapterTable(None).take("x", 1)


def test_slots_are_given_in_order_and_again_when_nobody_uses_them() -> None:
    table = AdapterTable(SPEC)
    adapters = [table.reserve(name) for name in "abc"]
    assert [adapter.slot for adapter in adapters] == [0, 1, 2]
    for adapter in adapters:
        table.publish(adapter)
    held = table.take("b", 2)
    table.unload("b")
    for _ in range(2):
        with pytest.raises(RequestError, match="all 3 places for adapters are in use"):
            table.reserve("d")
        table.release(held)
    again = table.reserve("b")
    assert again.slot == held.slot == 1
    assert again.generation != held.generation
    table.publish(again)
    for name in "abc":
        table.unload(name)
    assert table._holds == {}


def test_an_engine_without_room_has_no_slot() -> None:
    with pytest.raises(RequestError, match="all 0 places for adapters are in use"):
        AdapterTable(None).reserve("sql")


def test_slots_are_in_use_from_their_reservation_on() -> None:
    assert not AdapterTable(None).in_use
    table = AdapterTable(AdapterSpec(2, 16, ()))
    assert not table.in_use
    adapter = table.reserve("sql")
    assert table.in_use
    table.abandon(adapter)
    assert not table.in_use


def test_of_two_that_are_loaded_at_once_by_one_name_the_first_stays() -> None:
    table = AdapterTable(AdapterSpec(2, 16, ()))
    first, second = table.reserve("sql"), table.reserve("sql")
    table.publish(first)
    with pytest.raises(RequestError, match="an adapter 'sql' is loaded already"):
        table.publish(second)
    table.abandon(second)
    assert table.take("sql", 1) is first
    table.release(second)  # it holds nothing
    assert table.reserve("other").slot == second.slot


def test_a_name_is_checked() -> None:
    table = AdapterTable(AdapterSpec(1, 16, ()))
    with pytest.raises(RequestError, match="no adapter"):
        table.check("sql")
    table.publish(table.reserve("sql"))
    table.check("sql")


def test_one_that_is_unloaded_while_it_is_taken_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = AdapterTable(AdapterSpec(1, 16, ()))
    table.publish(table.reserve("sql"))
    known = table._holds

    class Unloads(dict[Adapter, Any]):
        """Another thread unloads the adapter as soon as it is looked up."""

        def get(self, adapter: Adapter, default: Any = None) -> Any:
            found = super().get(adapter, default)
            if table.names:
                table.unload("sql")
            return found

    monkeypatch.setattr(table, "_holds", Unloads(known))
    with pytest.raises(RequestError, match="no adapter"):
        table.take("sql", 3)
    assert not table.in_use, "its slot is free again"
