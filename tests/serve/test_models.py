"""Models and adapters of a server, by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import optc
from optc.errors import InputError, OptcError
from optc.runtime.engine import Engine
from optc.serve.api_errors import APIError
from optc.serve.models import AdapterSource, ModelSource, ModelTable
from tests.runtime.adapters.test_peft import SPEC as ADAPTERS
from tests.runtime.adapters.test_peft import saved
from tests.serve.toys import SPEC, AdaptedExecutable, toy_engine


def adapted() -> Engine:
    return toy_engine(lambda: AdaptedExecutable(replace(SPEC, adapters=ADAPTERS)))


def test_an_adapter_is_a_model(tmp_path: Path) -> None:
    engine = adapted()
    source = ModelSource("base", lambda: engine, (AdapterSource("sql", saved(tmp_path)),))
    table = ModelTable([source, ModelSource("other", toy_engine)])
    assert not table.loaded
    table.load()
    try:
        assert table.loaded
        assert list(table.models) == ["base", "sql", "other"]
        base, sql = table.find("base"), table.find("sql")
        assert base.engine is sql.engine is engine
        assert (base.adapter, sql.adapter) == (None, "sql")
        assert (base.to_json()["parent"], sql.to_json()["parent"]) == (None, "base")
        assert sql.to_json()["root"] == "base"
        params = optc.SamplingParams(temperature=0, max_tokens=4)
        (plain,) = engine.generate(["hi"], params)
        (other,) = engine.generate(["hi"], params, adapter=sql.adapter)
        assert plain.token_ids != other.token_ids
    finally:
        table.close()
    assert engine.health().state == "closed"


def test_what_fails_to_load_closes_the_others(tmp_path: Path) -> None:
    engine = adapted()
    wrong = ModelSource("b", toy_engine, (AdapterSource("sql", tmp_path / "nothing"),))
    table = ModelTable([ModelSource("a", lambda: engine), wrong])
    with pytest.raises(OptcError):
        table.load()
    assert {one.health().state for one in (engine, *table.engines.values())} == {"closed"}


def test_names_that_are_none() -> None:
    with pytest.raises(InputError, match="there is no model to serve"):
        ModelTable([])
    table = ModelTable([ModelSource("a", toy_engine), ModelSource("b", toy_engine)])
    table.load()
    try:
        for name in (None, ""):
            with pytest.raises(APIError, match="name a model: a, b"):
                table.find(name)
        with pytest.raises(APIError, match="the model 'c' does not exist; there are: a, b"):
            table.find("c")
    finally:
        table.close()
