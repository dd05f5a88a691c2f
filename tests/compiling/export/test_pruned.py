"""Models without some of their structures: what a config can say is exported, all else refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers
from msgspec import structs

from optc import registry
from optc.artifact.artifact import Artifact
from optc.artifact.manifest import EngineEntry, PassEntry
from optc.compiling.export.export import export_artifact
from optc.compiling.export.pruned import layer_numbers, pruned_source, renumbered
from optc.errors import UnsupportedError
from optc.importer.import_model import import_model
from optc.runtime.executable.executable import LayerKV
from tests.compiling.export.engines import PASSES, GivingBackend, weights_of, write_giving
from tests.compiling.export.pass_entries import pass_entry
from tests.importer.decoders import build, config_of, error, reference, save, tokens
from tests.support.pipelines import pipeline_of

FUSED = PASSES.removesuffix(",quantize-weights")
SIZES = {"num_hidden_layers": 3, "intermediate_size": 64, "head_dim": 12}
#: What passes leave, what they count, KV heads of each layer, and the layers that stay.
LEFT: dict[str, tuple[dict[str, int], dict[str, int], list[int], list[int]]] = {
    "prune-width": ({"intermediate_size": 32}, {"neurons": 96, "refitted": 3}, [2] * 3, [0, 1, 2]),
    "prune-heads": (
        {"num_attention_heads": 2, "num_key_value_heads": 1},
        {"KV heads": 3},
        [1] * 3,
        [0, 1, 2],
    ),
    "prune-depth": ({"num_hidden_layers": 2}, {"attention": 1, "mlp": 1}, [2] * 2, [0, 2]),
}


def artifact_of(
    folder: Path, config: dict[str, Any], done: PassEntry, heads: list[int]
) -> tuple[Artifact, EngineEntry]:
    artifact = write_giving(folder, config, FUSED)
    layers = tuple(LayerKV(0, count, 12, 12, "float32") for count in heads)
    (engine,) = artifact.manifest.engines
    groups = (replace(engine.spec.groups[0], layers=tuple(range(len(heads)))),)
    step = structs.replace(engine.spec, layers=layers, groups=groups)
    engine = structs.replace(engine, interface=step)
    passes = (artifact.manifest.passes[0], done, *artifact.manifest.passes[1:])
    manifest = structs.replace(artifact.manifest, engines=(engine,), passes=passes)
    return replace(artifact, manifest=manifest), engine


LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 3,
    "intermediate_size": 64,
    "hidden_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "layer_types": ["a", "b", "c"],
}
NAMES = ["model.layers.0.mlp.up.weight", "model.layers.2.mlp.up.weight", "lm_head.weight"]


def found(
    tmp_path: Path,
    name: str,
    details: dict[str, int],
    heads: list[int],
    names: Sequence[str] = NAMES,
    **changes: Any,
) -> dict[str, Any]:
    done = pass_entry(name, details)
    artifact, engine = artifact_of(tmp_path / "a", {**LLAMA, **changes}, done, heads)
    return pruned_source(artifact, engine, names).config


def test_equal_sizes_are_said(tmp_path: Path) -> None:
    assert found(tmp_path, "prune-width", {"neurons": 96}, [2] * 3)["intermediate_size"] == 32


def test_equal_heads_are_said(tmp_path: Path) -> None:
    config = found(tmp_path, "prune-heads", {"heads": 3}, [1] * 3)
    sizes = [config[f"num_{kind}_heads"] for kind in ("attention", "key_value")]
    assert (sizes, config["head_dim"]) == ([2, 1], 12)


def test_whole_layers_are_said(tmp_path: Path) -> None:
    config = found(tmp_path, "prune-depth", {"attention": 1, "mlp": 1}, [2] * 2)
    assert (config["num_hidden_layers"], config["layer_types"]) == (2, ["a", "c"])
    numbers = layer_numbers(NAMES)
    assert numbers == {0: 0, 1: 2}
    assert [renumbered(name, numbers) for name in NAMES] == [
        "model.layers.0.mlp.up.weight",
        "model.layers.1.mlp.up.weight",
        "lm_head.weight",
    ]


def test_a_wrapper_s_text_part(tmp_path: Path) -> None:
    whole = {"model_type": "gemma3", "text_config": LLAMA}
    done = pass_entry("prune-width", {"neurons": 96})
    artifact, engine = artifact_of(tmp_path / "a", whole, done, [2] * 3)
    assert pruned_source(artifact, engine, NAMES).config["text_config"]["intermediate_size"] == 32
    assert LLAMA["intermediate_size"] == 64


@pytest.mark.parametrize(
    ("name", "details", "heads", "changes", "message"),
    [
        ("prune-width", {"neurons": 95}, [2] * 3, {}, "different numbers of neurons"),
        ("prune-width", {"neurons": 96}, [2] * 3, {"ffn_dim": 9}, "different numbers of neurons"),
        ("prune-width", {"expert neurons": 96}, [2] * 3, {}, "different numbers of neurons"),
        ("prune-heads", {"heads": 1}, [2, 1, 2], {}, "different numbers of heads"),
        ("prune-heads", {"heads": 3}, [1] * 3, {"num_attention_heads": None}, "in another way"),
        ("prune-depth", {"mlp": 1}, [2] * 3, {}, "lost their attention or their MLP alone"),
        ("prune-depth", {"mlp": 1}, [2] * 3, {"num_hidden_layers": None}, "in another way"),
    ],
)
def test_what_no_config_can_say(
    name: str,
    details: dict[str, int],
    heads: list[int],
    changes: dict[str, Any],
    message: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(UnsupportedError, match=f"no config of the model's class.*{message}"):
        found(tmp_path, name, details, heads, **changes)


@pytest.mark.parametrize("name", LEFT)
def test_transformers_loads_what_is_left(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, details, heads, layers = LEFT[name]
    small = build(config_of("Llama", **{**SIZES, **left}))
    imported = import_model(save(small, tmp_path / "small"))
    pipeline_of(FUSED).run(imported.model)
    numbers = dict(zip(layers, range(len(layers)), strict=True))
    weights = {renumbered(n, numbers): w for n, w in weights_of(imported.model).items()}
    monkeypatch.setattr(registry, "backend", {"toy": GivingBackend(weights)}.__getitem__)
    source = config_of("Llama", **SIZES)
    config = {**source.to_dict(), "architectures": ["LlamaForCausalLM"]}
    done = pass_entry(name, details)
    artifact, _ = artifact_of(tmp_path / "a", config, done, heads)
    export_artifact(artifact, "hf", tmp_path / "out")
    read = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", attn_implementation="eager"
    )
    assert error(reference(read.eval(), tokens()), reference(small, tokens())) < 1e-6
