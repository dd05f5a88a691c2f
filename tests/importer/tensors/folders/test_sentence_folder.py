"""Folders of sentence-transformers: what they do before and behind their encoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import BertModel

from optc.errors import InputError, OptcError, UnsupportedError
from optc.importer.tensors.encoder import import_encoder
from optc.importer.tensors.folders.sentence_folder import SentenceFolder
from optc.system.sources.encoder_folder import may_be_encoder
from tests.importer.tensors.encoders import bert, sentence_transformer
from tests.support.ragged import run

IDS = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 3, 0, 0]])
MASK = (IDS != 0).long()
HIDDEN = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))


class Given(torch.nn.Module):
    """An encoder whose hidden states are known."""

    def forward(self, *_: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"last_hidden_state": HIDDEN}


def vectors(folder: Path) -> torch.Tensor:
    found = SentenceFolder.of(folder)
    assert found is not None
    pooled: torch.Tensor = found.pooled(Given())(IDS, MASK)["embeddings"]
    return pooled


def rows(of_one: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return torch.stack([of_one(HIDDEN[0]), of_one(HIDDEN[1, :3])])


def by_place(h: torch.Tensor) -> torch.Tensor:
    places = torch.arange(1.0, len(h) + 1)
    return (h * places[:, None]).sum(0) / places.sum()


KINDS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "cls": ("cls_token", lambda h: h[0]),
    "max": ("max_tokens", lambda h: h.amax(0)),
    "mean": ("mean_tokens", lambda h: h.mean(0)),
    "mean_sqrt_len_tokens": ("mean_sqrt_len_tokens", lambda h: h.sum(0) / len(h) ** 0.5),
    "weightedmean": ("weightedmean_tokens", by_place),
    "lasttoken": ("lasttoken", lambda h: h[-1]),
}


def pooling(folder: Path, **stated: Any) -> Path:
    """A folder whose pooling states something else."""
    sentence_transformer(folder, "mean_tokens", normalize=False)
    (folder / "1_Pooling/config.json").write_text(json.dumps(stated))
    return folder


@pytest.mark.parametrize("mode", KINDS)
def test_poolings_by_flags_and_by_name(tmp_path: Path, mode: str) -> None:
    flag, of_one = KINDS[mode]
    for name, stated in (("flags", {f"pooling_mode_{flag}": True}), ("name", {})):
        folder = pooling(tmp_path / name, **(stated or {"pooling_mode": mode}))
        torch.testing.assert_close(vectors(folder), rows(of_one))


def test_several_poolings_and_none_that_is_stated(tmp_path: Path) -> None:
    both = torch.cat([rows(KINDS["mean"][1]), rows(KINDS["cls"][1])], 1)
    found = vectors(pooling(tmp_path / "list", pooling_mode=["mean", "cls"]))
    torch.testing.assert_close(found, both)
    flags = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
    found = vectors(pooling(tmp_path / "flags", **flags))
    torch.testing.assert_close(found, torch.cat([both[:, 32:], both[:, :32]], 1))
    found = vectors(pooling(tmp_path / "none", pooling_mode_cls_token=False))
    torch.testing.assert_close(found, rows(KINDS["mean"][1]))


def with_layers(folder: Path, *layers: tuple[str, dict[str, Any], dict[str, torch.Tensor]]) -> Path:
    """A folder that pools and then has layers; weights of every second one are pickled."""
    pooling(folder, pooling_mode="mean")
    modules = json.loads((folder / "modules.json").read_text())
    for index, (kind, config, weights) in enumerate(layers, start=2):
        path = folder / f"{index}_{kind}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
        if weights and index % 2:
            torch.save(weights, path / "pytorch_model.bin")
        elif weights:
            save_file(weights, path / "model.safetensors")
        kind = f"sentence_transformers.models.{kind}"
        modules.append({"idx": index, "path": path.name, "type": kind})
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def test_layers_behind_the_pooling(tmp_path: Path) -> None:
    torch.manual_seed(1)
    weight, bias, square, scale = (torch.randn(*s) for s in ((8, 32), (8,), (8, 8), (8,)))
    activation = {"activation_function": "torch.nn.modules.linear.Identity"}
    folder = with_layers(
        tmp_path / "st",
        (
            "Dense",
            {"in_features": 32, "out_features": 8, "bias": True},
            {"linear.weight": weight, "linear.bias": bias},
        ),
        (
            "Dense",
            {"in_features": 8, "out_features": 8, "bias": False, "use_residual": True} | activation,
            {"linear.weight": square},
        ),
        ("LayerNorm", {"dimension": 8}, {"norm.weight": scale, "norm.bias": bias}),
        ("Dropout", {"dropout": 0.5}, {}),
        ("Normalize", {}, {}),
    )
    first = torch.tanh(rows(KINDS["mean"][1]) @ weight.T + bias)
    second = torch.nn.functional.layer_norm(first @ square.T + first, (8,), scale, bias)
    torch.testing.assert_close(vectors(folder), torch.nn.functional.normalize(second))


def test_a_head_that_the_class_has_is_left_out(tmp_path: Path) -> None:
    """Many folders name the class that was trained, such as MPNetForMaskedLM."""
    folder = sentence_transformer(tmp_path / "st", "cls_token", normalize=False)
    hidden = BertModel.from_pretrained(folder).eval()(IDS, MASK).last_hidden_state
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"architectures": ["BertForMaskedLM"], "max_position_embeddings": 40})
    )
    given = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": torch.zeros_like(IDS)}
    found = import_encoder(folder)
    (output,) = run(found.model, {name: one.numpy() for name, one in given.items()})
    np.testing.assert_allclose(output, hidden[:, 0].detach().numpy(), atol=1e-5)


def test_the_encoder_may_lie_in_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path / "st", "cls_token")
    bert(folder / "0_Transformer")
    (folder / "config.json").unlink()
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    found = SentenceFolder.of(folder)
    assert found is not None
    assert found.encoder == folder / "0_Transformer"
    assert may_be_encoder(folder)
    assert type(found.load()).__name__ == "BertModel"


def test_what_is_stated_of_texts(tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path / "st", "cls_token")
    plain = SentenceFolder.of(folder)
    assert plain is not None
    assert (plain.most, plain.lower, plain.prompt) == (None, False, "")
    settings = {"max_seq_length": 12, "do_lower_case": True}
    (folder / "sentence_roberta_config.json").write_text(json.dumps(settings))
    prompts = {"prompts": {"query": "q: "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    found = SentenceFolder.of(folder)
    assert found is not None
    assert (found.most, found.lower, found.prompt) == (12, True, "q: ")


def test_folders_that_do_not_pool_are_none(tmp_path: Path) -> None:
    folder = bert(tmp_path / "plain")
    assert SentenceFolder.of(folder) is None
    (folder / "modules.json").write_text(json.dumps([{"type": "a.Transformer", "path": ""}]))
    assert SentenceFolder.of(folder) is None  # of a cross-encoder


def outside(folder: Path) -> None:
    folder.mkdir()
    modules = [{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "../x"}]
    (folder / "modules.json").write_text(json.dumps(modules))


DENSE: dict[str, Any] = {"in_features": 32, "out_features": 8}


@pytest.mark.parametrize(
    ("break_it", "kind", "message"),
    [
        (lambda f: pooling(f, pooling_mode="median"), UnsupportedError, "pools by median"),
        (lambda f: with_layers(f, ("WordWeights", {}, {})), UnsupportedError, "WordWeights is not"),
        (
            lambda f: with_layers(f, ("Dense", DENSE | {"activation_function": "my.Act"}, {})),
            UnsupportedError,
            "its activation is my.Act",
        ),
        (
            lambda f: with_layers(
                f, ("Dense", DENSE | {"module_input_name": "token_embeddings"}, {})
            ),
            UnsupportedError,
            "module_input_name is 'token_embeddings'",
        ),
        (
            lambda f: with_layers(f, ("Dense", DENSE, {"linear.weight": torch.zeros(8, 31)})),
            InputError,
            "is no Dense of sentence-transformers",
        ),
        (outside, InputError, "outside of the folder"),
    ],
)
def test_what_is_not_known_is_refused(
    tmp_path: Path, break_it: Callable[[Path], object], kind: type[OptcError], message: str
) -> None:
    folder = tmp_path / "st"
    break_it(folder)
    with pytest.raises(kind, match=message):
        SentenceFolder.of(folder)


def test_a_prompt_outside_of_the_pooling_is_refused(tmp_path: Path) -> None:
    folder = pooling(tmp_path / "st", pooling_mode="mean", include_prompt=False)
    assert SentenceFolder.of(folder) is not None
    prompts = {"prompts": {"query": "q: "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with pytest.raises(UnsupportedError, match="tokens of the prompt 'q: ' are left out"):
        SentenceFolder.of(folder)
