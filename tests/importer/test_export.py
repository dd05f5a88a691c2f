"""What the export does beside PyTorch's own: no weights, no notes, fixed rotary frequencies."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx_ir as ir
import pytest
import torch
from transformers import PreTrainedModel

from optc.errors import UnsupportedError
from optc.importer import export
from optc.importer.export import IR_VERSION, OPSET, export_decoder
from optc.importer.tracing.kept_graphs import pack
from optc.system.logs.quiet import quiet
from tests.importer.decoders import config_of


def test_a_graph_without_weights_or_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path))
    exported = export_decoder(config_of("Llama", num_hidden_layers=1), allow_remote_code=False)
    model = exported.model
    assert not exported.fixed_rope
    assert (model.ir_version, model.opset_imports[""]) == (IR_VERSION, OPSET)
    assert [value.name for value in model.graph.inputs] == ["input_ids", "position_ids"]
    assert [value.name for value in model.graph.outputs] == ["logits"]
    assert "model.norm.weight" in model.graph.initializers
    assert not any(node.metadata_props or node.doc_string for node in model.graph)
    assert not model.metadata_props
    # another model of the config: nothing is exported again
    monkeypatch.setattr(torch.onnx, "export", None)
    again = export_decoder(config_of("Llama", num_hidden_layers=1), allow_remote_code=False)
    assert again.fixed_rope == exported.fixed_rope
    assert pack(again.model) == pack(model)


def test_a_class_that_reads_its_weights_while_it_is_built(tmp_path: Path) -> None:
    """Starting values of this one are cut off by how far they spread; a graph needs none."""
    config = config_of("ModernBertDecoder", global_attn_every_n_layers=1)
    assert export._decoder(config, False).graph.num_nodes() > 20


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("dynamic", "default"),
        ("longrope", "default"),
        ("yarn", "yarn"),
        ({"full": "dynamic", "sliding": "default"}, {"full": "default", "sliding": "default"}),
        ({"full": "linear"}, {"full": "linear"}),
        (None, None),
    ],
    ids=str,
)
def test_frequencies_that_depend_on_the_length_are_fixed(kind: Any, after: Any) -> None:
    module = SimpleNamespace(rope_type=kind)
    decoder = cast(PreTrainedModel, SimpleNamespace(modules=lambda: [module]))
    assert export._fix_rope(decoder) == (kind != after)
    assert module.rope_type == after


def test_the_reason_is_ours_or_the_first_one() -> None:
    first = ValueError("first")
    second = RuntimeError("second")
    second.__cause__ = first
    assert export._reason(second) is first
    first.__cause__ = ours = UnsupportedError("ours")
    ours.__cause__ = KeyError("not looked at")
    assert export._reason(second) is ours


def test_developers_notes_are_kept_off_the_terminal() -> None:
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings(), quiet():
        warnings.warn("a note to developers", UserWarning, stacklevel=1)
        assert not logger.isEnabledFor(logging.WARNING)
    assert logger.level == level


def test_what_cannot_be_captured_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path))

    def fails(*_: object, **__: object) -> None:
        raise torch.onnx.OnnxExporterError("outer") from ValueError("the cause\nsecond line")

    monkeypatch.setattr(torch.onnx, "export", fails)
    with pytest.raises(UnsupportedError) as caught:
        export_decoder(config_of("Llama", num_hidden_layers=1), allow_remote_code=False)
    assert str(caught.value) == "LlamaForCausalLM: the model cannot be exported: the cause"
    assert list(tmp_path.iterdir()) == []


def test_fixed_frequencies_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path))
    packed = ir.Model(ir.Graph([], [], nodes=[]), ir_version=10)
    packed.metadata_props["fixed_rope"] = "fixed_rope"
    monkeypatch.setattr(export, "_decoder", lambda *_: packed)
    for _ in range(2):
        config = config_of("Llama", num_hidden_layers=1)
        exported = export_decoder(config, allow_remote_code=False)
        assert exported.fixed_rope
        assert not exported.model.metadata_props
        monkeypatch.setattr(export, "_decoder", None)  # from the cache
