"""Checkpoints as the Hub has them become the parameters of the class, for every causal type."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel
from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    get_model_conversion_mapping,
)
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from optc.errors import InputError, UnsupportedError
from optc.importer import hugging_face
from optc.importer.checkpoint import checkpoint_files, read_checkpoint
from optc.importer.conversion.checkpoint import Conversion, convert_checkpoint
from optc.importer.conversion.views import Joined, Stacked
from optc.importer.export import Exported
from optc.importer.import_model import import_model
from optc.importer.safetensors import StoredTensor
from optc.ir.stacked_weights import StackedWeight
from optc.ir.weights import LazyWeight
from tests.importer.conversion.arrays import tensors, whole
from tests.importer.decoders import build, config_of, save

#: Types of which transformers makes no model of its defaults with two layers.
NOT_BUILT = {"dots1", "gemma3n_text", "gemma4_unified", "hunyuan_v1_moe", "lfm2_moe"}
#: Types that need an operation of their own (`tests.importer.conversion.test_operations`).
REFUSED = {"inkling2_loop_text", "inkling2_text"}
UNBUILDABLE = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    RuntimeError,
    AssertionError,
    ImportError,
    StrictDataclassError,
)
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def small(kind: str) -> transformers.PretrainedConfig:
    """The default config of a type with two layers and four experts."""
    config = CONFIG_MAPPING[kind]()
    text = config.get_text_config()
    for names, value in ((LAYERS, 2), (EXPERTS, 4)):
        for name in names:
            if isinstance(getattr(text, name, None), int):
                setattr(text, name, value)
    return config


def has_mapping(kind: str) -> bool:
    """True if transformers has one for the type, as far as its name says."""
    return get_checkpoint_conversion_mapping(kind) is not None


def on_the_hub(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The tensors of a model by the names and in the layout of published checkpoints."""
    model._weight_conversions = get_model_conversion_mapping(model, add_legacy=False)
    return revert_weight_conversion(model, dict(model.state_dict()))


def test_every_type_with_a_mapping_gets_the_shapes_of_its_class() -> None:
    transformers.logging.set_verbosity_error()
    converted = set()
    for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        try:
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(small(kind))
        except UNBUILDABLE:
            assert kind in NOT_BUILT or not has_mapping(kind), kind
            continue
        if not get_model_conversion_mapping(model, add_legacy=False):
            continue
        stored = tensors(on_the_hub(model))
        if kind in REFUSED:
            with pytest.raises(UnsupportedError, match="need the conversion Inkling2"):
                convert_checkpoint(stored, Conversion.of(model))
            continue
        found = convert_checkpoint(stored, Conversion.of(model))
        expected = {name: tuple(one.shape) for name, one in model.state_dict().items()}
        assert {name: one.shape for name, one in found.items()} == expected, kind
        converted.add(kind)
    assert {"mixtral", "qwen3_moe", "deepseek_v3", "nemotron_h", "gpt_neox"} <= converted
    assert len(converted) > 55, "the mapping of transformers has shrunk"


def mixtral() -> PreTrainedModel:
    config = transformers.MixtralConfig(
        vocab_size=11,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=12,
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config)


def test_experts_are_stacked_in_the_order_of_their_numbers() -> None:
    model = mixtral()
    stored = on_the_hub(model)
    assert "model.layers.0.block_sparse_moe.experts.11.w1.weight" in stored
    found = convert_checkpoint(tensors(stored), Conversion.of(model))
    state = model.state_dict()
    assert set(found) == set(state)
    for name, expected in state.items():
        np.testing.assert_array_equal(whole(found[name]), expected.numpy(), name)
    again = convert_checkpoint(tensors(state), Conversion.of(model))
    assert set(again) == set(state), "names of the class are left alone"


def test_an_expert_that_is_missing_shows_in_the_shape() -> None:
    model = mixtral()
    stored = on_the_hub(model)
    for part in "w1", "w2", "w3":
        del stored[f"model.layers.0.block_sparse_moe.experts.3.{part}.weight"]
    found = convert_checkpoint(tensors(stored), Conversion.of(model))
    assert found["model.layers.0.mlp.experts.gate_up_proj"].shape == (11, 24, 8)


def test_a_prefix_may_be_missing_and_what_nobody_knows_stays() -> None:
    model = mixtral()
    stored = {n.removeprefix("model."): t for n, t in on_the_hub(model).items()}
    stored["layers.0.strange"] = torch.ones(1)
    found = convert_checkpoint(tensors(stored), Conversion.of(model))
    assert set(found) == {*model.state_dict(), "layers.0.strange"}
    assert found["model.norm.weight"].where == "memory: norm.weight"


def test_two_tensors_that_are_one_parameter_are_refused() -> None:
    model = mixtral()
    stored = on_the_hub(model)
    stored["norm.weight"] = stored["model.norm.weight"]
    with pytest.raises(InputError, match=r"memory: norm\.weight: is the parameter model\.norm"):
        convert_checkpoint(tensors(stored), Conversion.of(model))


def test_a_layer_of_large_experts_is_read_in_small_tiles(tmp_path: Path) -> None:
    """Two of Mixtral's layers would be 3.8 GB; what is read of one at a time stays 4 MiB."""
    experts, inner, hidden = 8, 14336, 4096
    file, step = tmp_path / "sparse", inner * hidden
    with file.open("wb") as stream:
        stream.truncate(2 * 2 * experts * step)
    gate, up = (
        [StoredTensor(file, f"{e}", "BF16", (inner, hidden), 2 * step * (e + at)) for e in range(8)]
        for at in (0, experts)
    )
    gate_up = Joined("gate_up", [Stacked("gate", gate), Stacked("up", up)], 1)
    shape = (experts, 2 * inner, hidden)
    assert gate_up.shape == shape
    folded = StackedWeight(gate_up.read_box, shape, ir.DataType.FLOAT, "gate_up").fold()
    tiles = list(folded.tiles())
    tracemalloc.start()
    for start, stop in (tiles[0], tiles[len(tiles) // 16], tiles[-1]):
        assert folded.read_rows(start, stop).shape == (stop - start, hidden)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_renamed_checkpoint_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head of GPT-NeoX goes by another name on the Hub than in its class."""
    model = build(config_of("GPTNeoX"))

    def exported(config: object, *, allow_remote_code: bool) -> Exported:
        graph = ir.Graph([], [], nodes=[], name="parameters")
        for name, _ in model.named_parameters():
            graph.initializers[name] = ir.Value(name=name)
        return Exported(ir.Model(graph, ir_version=10), fixed_rope=False)

    monkeypatch.setattr(hugging_face, "export_decoder", exported)
    save(model, tmp_path)
    assert "embed_out.weight" in read_checkpoint(checkpoint_files(tmp_path))
    imported = import_model(tmp_path)
    assert "lm_head.weight" in imported.model.graph.initializers
    assert imported.warnings == []
    for name, value in imported.model.graph.initializers.items():
        if isinstance(value.const_value, LazyWeight):
            expected = model.get_parameter(name).detach().numpy()
            np.testing.assert_array_equal(value.const_value.numpy(), expected, name)
