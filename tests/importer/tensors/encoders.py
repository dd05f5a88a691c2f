"""Tiny folders of encoders, with seeded random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    SiglipVisionConfig,
    SiglipVisionModel,
    ViTConfig,
    ViTModel,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz"]
#: Most tokens of a text.
POSITIONS = 40


def bert(folder: Path, *, head: bool = False) -> Path:
    """A BERT of two layers, and a tokenizer of letters."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=POSITIONS,
        initializer_range=0.3,
    )
    (BertForMaskedLM if head else BertModel)(config).save_pretrained(folder)
    reader = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    reader.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    reader.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    reader.save(str(folder / "tokenizer.json"))
    # or transformers makes the tokenizer of BERT's class, which cuts words
    stated = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": WORDS[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    return folder


def sentence_transformer(folder: Path, *modes: str, normalize: bool = True) -> Path:
    """A folder of sentence-transformers that pools by ``modes``."""
    bert(folder)
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    modules: list[dict[str, Any]] = [
        {"idx": i, "path": "" if i == 0 else f"{i}_{kind}", "type": f"s.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    config = {f"pooling_mode_{mode}": True for mode in modes} | {"word_embedding_dimension": 32}
    (folder / "1_Pooling/config.json").write_text(json.dumps(config))
    return folder


def pooled_by_attention(folder: Path) -> Path:
    """SigLIP's encoder of images: attention of one row a sequence pools its rows."""
    torch.manual_seed(0)
    config = SiglipVisionConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=16,
        patch_size=8,
    )
    SiglipVisionModel(config).save_pretrained(folder)
    return folder


def vit(folder: Path) -> Path:
    """A ViT of one layer over images of 16."""
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=16,
        patch_size=8,
    )
    ViTModel(config).save_pretrained(folder)
    return folder
