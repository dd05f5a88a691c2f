"""Folders of encoders: which they are, their inputs, and their poolings."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import BertModel, ViTModel

from optc.artifact.tasks.embedding import EMBEDDING
from optc.artifact.tasks.tensors import TENSORS
from optc.errors import UnsupportedError
from optc.importer.tensors.encoder import _most_tokens, import_encoder, is_encoder
from optc.importer.tensors.folders.sentence_folder import SentenceFolder
from optc.importer.tensors.folders.text_reader import TextReader
from optc.system.sources.encoder_folder import may_be_encoder
from tests.importer.tensors.encoders import POSITIONS, bert, sentence_transformer, vit
from tests.support.ragged import run

IDS = np.array([[2, 5, 6, 7, 3], [2, 9, 3, 0, 0]])
MASK = (IDS != 0).astype(np.int64)
GIVEN = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": np.zeros_like(IDS)}


def hidden(folder: Path) -> torch.Tensor:
    model = BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        found: torch.Tensor = model(**{k: torch.from_numpy(v) for k, v in GIVEN.items()})[0]
    return found


@pytest.mark.parametrize(
    ("name", "encodes"),
    [
        ("BertModel", True),
        ("BertForMaskedLM", True),
        ("ViTForImageClassification", True),
        ("RobertaForSequenceClassification", True),
        ("LlamaForCausalLM", False),
        ("GPT2LMHeadModel", False),
        ("LlamaModel", False),  # the base of a decoder: its refusal says which class has a head
        ("T5ForConditionalGeneration", False),
    ],
)
def test_which_classes_encode(tmp_path: Path, name: str, encodes: bool) -> None:
    kind = {"V": "vit", "R": "roberta", "B": "bert", "L": "llama", "G": "gpt2", "T": "t5"}[name[0]]
    stated = {"architectures": [name], "model_type": kind}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    assert (may_be_encoder(tmp_path) and is_encoder(tmp_path)) == encodes


@pytest.mark.parametrize("content", ["", "[]", '{"architectures": [3]}', '{"architectures": []}'])
def test_configs_that_say_nothing(tmp_path: Path, content: str) -> None:
    assert not may_be_encoder(tmp_path)
    (tmp_path / "config.json").write_text(content)
    assert not may_be_encoder(tmp_path)


def test_a_text_encoder(tmp_path: Path) -> None:
    folder = bert(tmp_path / "small")
    found = import_encoder(folder)
    assert (found.name, found.task, found.tokenizer) == ("small", TENSORS, "")
    assert [one.dims for one in found.interface.inputs] == [("batch", "tokens")] * 3
    assert found.interface.symbols["tokens"].most == POSITIONS
    outputs = dict(
        zip((one.name for one in found.interface.outputs), run(found.model, GIVEN), strict=True)
    )
    wanted = hidden(folder).numpy()
    kept = MASK[..., None] == 1  # what stands at padding is nobody's
    np.testing.assert_allclose(
        np.where(kept, outputs["last_hidden_state"], 0), np.where(kept, wanted, 0), atol=1e-5
    )


def test_an_image_encoder(tmp_path: Path) -> None:
    found = import_encoder(vit(tmp_path / "vit"))
    assert [one.dims for one in found.interface.inputs] == [("batch", 3, 16, 16)]
    pixels = np.random.default_rng(0).standard_normal((3, 3, 16, 16)).astype(np.float32)
    model = ViTModel.from_pretrained(tmp_path / "vit").eval()
    with torch.no_grad():
        wanted = model(torch.from_numpy(pixels))
    names = [one.name for one in found.interface.outputs]
    for name, output in zip(names, run(found.model, {"pixel_values": pixels}), strict=True):
        np.testing.assert_allclose(output, wanted[name].numpy(), atol=1e-5)


def test_vectors_of_texts(tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path / "st", "mean_tokens", normalize=False)
    found = import_encoder(folder)
    assert found.task is EMBEDDING
    assert [one.name for one in found.interface.outputs] == ["embeddings"]
    states = hidden(folder)
    wanted = torch.stack([states[0].mean(0), states[1, :3].mean(0)]).numpy()
    np.testing.assert_allclose(run(found.model, GIVEN)[0], wanted, atol=1e-5)


def test_without_a_tokenizer_token_ids_are_taken_and_a_warning_says_so(tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path / "st", "cls_token")
    (folder / "tokenizer.json").unlink()
    found = import_encoder(folder)
    assert found.task is TENSORS
    assert not found.tokenizer
    assert "takes token ids, and no texts" in found.warnings[-1]


@pytest.mark.parametrize(
    ("positions", "stated", "own", "most"),
    [
        (40, None, None, 40),
        (40, 12, None, 12),
        (40, 12, 20, 20),  # sentence-transformers' own is before the tokenizer's
        (40, 99, None, 40),
        (-1, None, None, 512),  # as XLNet says that it has no table
        (None, 2048, None, 2048),
    ],
)
def test_texts_are_cut_as_transformers_cuts_them(
    positions: int | None, stated: int | None, own: int | None, most: int
) -> None:
    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=positions), modules=list)
    reader = TextReader(Tokenizer(models.WordLevel()), stated, 0, typed=True)
    sentences = SentenceFolder(Path(), ("cls",), (), own, lower=False, prompt="")
    assert _most_tokens(model, sentences, reader) == most


@pytest.mark.parametrize(
    ("kind", "behind_padding"),
    [
        ("Roberta", True),
        ("XLMRoberta", True),
        ("Camembert", True),
        ("MPNet", True),
        ("Data2VecText", True),
        ("RobertaPreLayerNorm", True),
        ("Bert", False),
        ("Electra", False),
        ("DistilBert", False),
    ],
)
def test_positions_that_count_from_behind_padding(kind: str, behind_padding: bool) -> None:
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=90,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=40,
        pad_token_id=1,
    )
    model = getattr(transformers, f"{kind}Model")(config).eval()
    most = _most_tokens(model, None, None)
    assert most == (38 if behind_padding else 40)
    ids = torch.full((1, most), 5)
    model(ids)
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.full((1, most + 1), 5))


@pytest.mark.parametrize("kind", ["Qwen3_5TextForSequenceClassification", "Qwen3_5TextModel"])
def test_layers_with_states_are_refused_before_they_are_exported(tmp_path: Path, kind: str) -> None:
    """Padding would go into the states, and chunks of rows would be unrolled for minutes."""
    config = transformers.Qwen3_5TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        layer_types=["linear_attention"],
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_num_key_heads=1,
        linear_num_value_heads=1,
        pad_token_id=0,
    )
    getattr(transformers, kind)(config).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedError, match="carry a state from token to token") as caught:
        import_encoder(tmp_path)
    assert caught.value.where == str(tmp_path)
    assert "ForCausalLM" in caught.value.hint
