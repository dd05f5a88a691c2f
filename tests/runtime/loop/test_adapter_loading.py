from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optc.errors import InputError, RequestError
from optc.runtime.adapters.table import AdapterTable
from optc.runtime.executable.adapter_spec import ModuleWeights
from optc.runtime.loop.adapter_loading import load_adapter
from tests.runtime.adapters.test_peft import SPEC, saved


class Worker:
    """Calls at once, over an engine that keeps what is written; may fail."""

    def __init__(self, table: AdapterTable, error: Exception | None = None) -> None:
        self.written: list[tuple[int, Sequence[ModuleWeights | None]]] = []
        self.known: list[tuple[str, ...]] = []
        self._table, self._error = table, error

    def call(self, function: Callable[[Any], None]) -> None:
        if self._error is not None:
            raise self._error
        function(SimpleNamespace(executable=self))

    def write_adapter(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        self.known.append(self._table.names)
        self.written.append((slot, modules))


def test_weights_are_there_before_the_name_is_known(tmp_path: Path) -> None:
    table = AdapterTable(SPEC)
    worker = Worker(table)
    load_adapter(worker, table, SPEC, "sql", saved(tmp_path))
    assert worker.known == [()]
    assert table.names == ("sql",)
    ((slot, modules),) = worker.written
    assert slot == table.take("sql", 1).slot
    assert [module is None for module in modules] == [False, True]
    assert modules[0] is not None
    assert np.any(modules[0].a)


def test_an_engine_without_room_for_adapters_says_how_to_get_one(tmp_path: Path) -> None:
    table = AdapterTable(None)
    with pytest.raises(InputError) as caught:
        load_adapter(Worker(table), table, None, "sql", tmp_path)
    assert str(caught.value) == (
        "load_adapter: the artifact takes no adapters (compile it with --adapters max=8,rank=16)"
    )


def test_a_slot_comes_back_when_the_engine_fails(tmp_path: Path) -> None:
    table = AdapterTable(SPEC)
    folder = saved(tmp_path)
    for _ in range(SPEC.max + 1):
        with pytest.raises(RuntimeError, match="stopped"):
            load_adapter(Worker(table, RuntimeError("stopped")), table, SPEC, "sql", folder)
    assert table.names == ()
    load_adapter(Worker(table), table, SPEC, "sql", folder)
    with pytest.raises(RequestError, match="loaded already"):
        load_adapter(Worker(table), table, SPEC, "sql", folder)


def test_a_wrong_folder_takes_no_slot(tmp_path: Path) -> None:
    table = AdapterTable(SPEC)
    for _ in range(SPEC.max + 1):
        with pytest.raises(InputError):
            load_adapter(Worker(table), table, SPEC, "sql", tmp_path / "nothing")
    assert table.reserve("sql").slot == 0
