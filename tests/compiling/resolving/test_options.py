"""Options of a compile: looked up and checked before any work begins."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving.engines import name_engines
from optc.compiling.resolving.options import (
    DEFAULT_CONTEXT,
    ResolvedOptions,
    build_limits,
    for_engines,
    resolve_options,
)
from optc.errors import InputError, UnsupportedError
from optc.system.options import CompileOptions
from tests.support.stub import StubBackend


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder as far as options are checked."""
    folder = tmp_path / "m"
    folder.mkdir()
    config = {"max_position_embeddings": 64, "num_hidden_layers": 4}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(Tokenizer(BPE()).to_str())
    return folder


def resolve(model: Path, output: str | None = None, **more: Any) -> ResolvedOptions:
    """The options of ``optc.compile(model, "fp32", output, **more)``."""
    return resolve_options(model, CompileOptions(recipe="fp32", output=output, **more))


def wanting(options: ResolvedOptions, max_context: int) -> ResolvedOptions:
    return replace(options, asked=replace(options.asked, max_context=max_context))


def test_defaults(model: Path, backends: dict[str, StubBackend]) -> None:
    found = resolve(model)
    assert found.source == model
    assert found.output == Path("artifacts/m-fp32")
    assert [(e.name, e.backend.name, e.target.name) for e in found.engines] == [
        ("target", "tvm", "native")
    ]
    assert found.recipe == found.draft_recipe
    assert (found.asked.no_gates, found.max_ram_bytes, found.warnings) == (False, 0, ())
    assert found.asked == CompileOptions(recipe="fp32")


def test_what_is_asked_for(model: Path, backends: dict[str, StubBackend], tmp_path: Path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("text")
    found = resolve(
        model,
        "out",
        max_ram="2GiB",
        eval_text=str(text),
        dump_dir="dumps",
        draft=str(model),
        self_draft="auto",
        no_gates=True,
        calibration=str(text),
    )
    assert found.output == Path("out")
    assert found.max_ram_bytes == 2 << 30
    assert (found.asked.eval_text, found.asked.dump_dir, found.draft_folder) == (
        text,
        Path("dumps"),
        model,
    )
    assert (found.asked.self_draft, found.asked.no_gates) == ("auto", True)
    assert found.warnings == ("recipe fp32 has no pass that calibrates: the text is not used",)
    assert resolve(model, max_ram=5000).max_ram_bytes == 5000


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"eval_text": "absent"}, "--eval-text: no such file: absent"),
        ({"draft": "absent"}, "--draft: no model (config.json) in absent"),
        ({"draft": "self:bits=5"}, "--draft self:bits=5: bits=5 (2, 3 or 4)"),
        ({"self_draft": "some"}, "--self-draft: 'some' layers (a number, or auto)"),
        ({"self_draft": 4}, "--self-draft: 4 of 4 layers (1 to 3)"),
        ({"max_context": 65}, "--max-context: 65 tokens exceed the model's own context of 64"),
        ({"max_ram": "much"}, "--max-ram: 'much' is not a size"),
        ({"max_ram": "4"}, "--max-ram: 4 without a unit is 4 B, in which nothing fits"),
        ({"max_ram": 4}, "--max-ram: 4 without a unit is 4 B, in which nothing fits"),
        ({"backend": "aot:sm_89", "self_draft": 1}, "--self-draft: engines of the aot backend"),
        ({"backend": "aot:sm_89"}, "gates: the gates of aot-sm_89 cannot be measured here"),
    ],
)
def test_what_is_refused(
    model: Path, backends: dict[str, StubBackend], more: dict[str, Any], error: str
) -> None:
    with pytest.raises((InputError, UnsupportedError)) as caught:
        resolve(model, **more)
    assert caught.value.render().startswith(error)


def test_a_draft_of_the_target_is_no_folder(model: Path, backends: dict[str, StubBackend]) -> None:
    found = resolve(model, draft="self:auto")
    assert found.draft_folder is None
    assert [one.spec.text for one in found.candidates] == ["self:bits=2", "self:bits=3"]
    assert resolve(model).candidates == ()


@pytest.mark.parametrize("option", ["no_gates", "allow_unmeasured", "keep_failed"])
def test_engines_that_cannot_be_measured_here_are_let_through_on_request(
    model: Path, backends: dict[str, StubBackend], option: str
) -> None:
    found = resolve(model, backend="aot:sm_89", **{option: True})
    assert found.recipe.backend == "aot"


def test_the_context_is_the_models_own_within_limits(
    model: Path, backends: dict[str, StubBackend]
) -> None:
    options = resolve(model, max_ram=9000)
    limits = build_limits(options, 100)
    assert limits.max_context == 100
    assert limits.max_ram_bytes == 9000
    assert build_limits(options, DEFAULT_CONTEXT + 1).max_context == DEFAULT_CONTEXT
    longer = wanting(options, DEFAULT_CONTEXT + 1)
    assert build_limits(longer, DEFAULT_CONTEXT + 1).max_context == DEFAULT_CONTEXT + 1
    with pytest.raises(InputError, match="exceed the model's own context of 64"):
        build_limits(wanting(options, 65), 64)


def test_engines_get_their_options_unless_the_user_says_otherwise(
    backends: dict[str, StubBackend], tmp_path: Path
) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(
        "name: r\npipeline: [canonicalize, kv-cache]\n"
        "for_engines: {aot: {kv-cache.dtype: int8}, cuda: {kv-cache.query_bits: 8}}\n"
    )
    recipe = load_recipe(path)
    cpu, both = (name_engines(names, None, "tvm") for names in ("tvm", "tvm,aot:sm_89"))
    assert "int8" not in for_engines(recipe, cpu, ()).pipeline.spec()
    wanted = for_engines(recipe, both, ())
    assert "dtype=int8" in wanted.pipeline.spec()
    assert "query_bits=8" in wanted.pipeline.spec()
    assert wanted.backend == "tvm", "of the first engine"
    tiles = name_engines("tvm:x86-64-v4-vnni,tvm:x86-64-amx", None, "tvm")
    floats = load_recipe("bf16-fused")
    assert "dtype=float16" in for_engines(floats, cpu, ()).pipeline.spec()
    assert "dtype=bfloat16" in for_engines(floats, tiles, ()).pipeline.spec()
    own = load_recipe(path, sets=["kv-cache.dtype=bfloat16"])
    assert "dtype=bfloat16" in for_engines(own, both, ["kv-cache.dtype=bfloat16"]).pipeline.spec()
