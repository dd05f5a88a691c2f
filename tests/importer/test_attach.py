"""Parameters of a decoder and tensors of a checkpoint find each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from safetensors.torch import save_file

from optc.errors import InputError, UnsupportedError
from optc.importer.attach import attach_weights, match_checkpoint, unused_tensors
from optc.importer.safetensors import StoredTensor, read_header
from optc.importer.skeleton import Skeleton
from optc.ir.weights import LazyWeight

SKELETON = Skeleton(
    shapes={"embed": (4, 2), "norm": (2,), "head": (4, 2)},
    tied={"head": "embed"},
    buffers={"rope": np.arange(3, dtype=np.float32)},
)


def checkpoint(folder: Path, **tensors: torch.Tensor) -> dict[str, StoredTensor]:
    save_file(tensors, folder / "m.safetensors")
    return read_header(folder / "m.safetensors")


EMBED = torch.arange(8.0).reshape(4, 2)


@pytest.mark.parametrize("name", ["embed", "head"])
def test_tied_parameters_get_the_tensor_that_is_there(name: str, tmp_path: Path) -> None:
    stored = checkpoint(tmp_path, norm=torch.ones(2), **{name: EMBED})
    matched = match_checkpoint(SKELETON, stored)
    assert set(matched) == set(SKELETON.shapes)
    assert matched["embed"] is matched["head"] is stored[name]


def test_tied_parameters_may_be_there_twice_if_they_are_equal(tmp_path: Path) -> None:
    tensors = {"norm": torch.ones(2), "embed": EMBED, "head": EMBED.clone()}
    matched = match_checkpoint(SKELETON, checkpoint(tmp_path, **tensors))
    assert matched["head"].name == "embed"
    with pytest.raises(InputError, match="ties this tensor to embed, but the checkpoint has"):
        match_checkpoint(SKELETON, checkpoint(tmp_path, **{**tensors, "head": EMBED + 1}))


def test_what_is_missing_or_of_another_shape_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="norm: the checkpoint lacks this tensor"):
        match_checkpoint(SKELETON, checkpoint(tmp_path, embed=EMBED))
    with pytest.raises(InputError, match=r"shape \[3\], the config says \[2\]") as caught:
        match_checkpoint(SKELETON, checkpoint(tmp_path, embed=EMBED, norm=torch.ones(3)))
    assert caught.value.where == f"{tmp_path / 'm.safetensors'}: norm"


def graph(*names: str) -> ir.Model:
    model = ir.Model(ir.Graph([], [], nodes=[], name="g"), ir_version=10)
    for name in names:
        value = ir.Value(name=name)
        model.graph.initializers[name] = value
    return model


def test_initializers_get_values_and_the_checkpoints_names(tmp_path: Path) -> None:
    stored = checkpoint(tmp_path, norm=torch.ones(2), head=EMBED)
    model = graph("embed", "norm", "rope")
    attach_weights(model, SKELETON, match_checkpoint(SKELETON, stored))
    values = model.graph.initializers
    assert set(values) == {"head", "norm", "rope"}
    weight = values["head"].const_value
    assert isinstance(weight, LazyWeight)
    np.testing.assert_array_equal(weight.read_rows(1, 3), EMBED[1:3].numpy())
    rope = values["rope"].const_value
    assert rope is not None
    np.testing.assert_array_equal(rope.numpy(), SKELETON.buffers["rope"])


def test_an_initializer_that_nobody_knows_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="other: a constant of the graph without a value"):
        attach_weights(graph("other"), SKELETON, {})


def test_tensors_that_old_checkpoints_carry_are_not_unused(tmp_path: Path) -> None:
    names = ("embed", "z.rotary_emb.inv_freq", "b", "a", "h.0.attn.bias")
    stored = checkpoint(tmp_path, **{name: torch.ones(1) for name in names})
    assert unused_tensors(SKELETON, stored) == ["a", "b"]


@pytest.mark.parametrize("wrapper", ["_orig_mod.", "module.", "base_model.model."])
def test_a_wrapper_s_prefix_is_named(wrapper: str, tmp_path: Path) -> None:
    """Of torch.compile, DataParallel and PEFT."""
    tensors = {"norm": torch.ones(2), "embed": EMBED}
    stored = checkpoint(tmp_path, **{wrapper + name: one for name, one in tensors.items()})
    with pytest.raises(InputError, match="lacks this tensor") as caught:
        match_checkpoint(SKELETON, stored)
    assert caught.value.hint == (
        f"it is there as {wrapper}embed: save the model without what wraps it, {wrapper!r}"
    )


def test_a_base_model_is_named(tmp_path: Path) -> None:
    skeleton = Skeleton(shapes={"model.embed": (4, 2)}, tied={}, buffers={})
    with pytest.raises(InputError, match="lacks this tensor") as caught:
        match_checkpoint(skeleton, checkpoint(tmp_path, embed=EMBED))
    assert caught.value.hint == "it is there as embed: save the whole model, not its base"
