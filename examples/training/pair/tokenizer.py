"""The tokenizer of both models, and the corpus as its tokens."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from .corpus import documents
from .sizes import COMMON

BOS, EOS, PAD = "<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"
SPECIAL = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
# The pre-tokeniser pattern of Llama 3: keeps runs of indentation together and glues
# newlines to the punctuation before them, which suits code.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(options: Namespace) -> None:
    """Train a byte-level BPE into ``tokenizer/``, as transformers reads it."""
    work = Path(options.work)
    tokenizer = Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=options.vocab,
        special_tokens=[BOS, EOS, PAD],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(documents(work, "train"), trainer)
    bos = tokenizer.token_to_id(BOS)
    with_bos = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, bos)]
    )
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), with_bos]
    )
    folder = work / "tokenizer"
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **SPECIAL,
        "model_max_length": COMMON["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    _write_json(folder / "tokenizer_config.json", config)
    _write_json(folder / "special_tokens_map.json", SPECIAL)
    print("vocabulary", tokenizer.get_vocab_size())


def encode(options: Namespace) -> None:
    """Write the tokens of both parts, BOS and EOS around each document, as ``PART.u16``."""
    work = Path(options.work)
    tokenizer = Tokenizer.from_file(str(work / "tokenizer/tokenizer.json"))
    bos, eos = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
    for part in ("train", "eval"):
        ids: list[int] = []
        size = 0
        for text in documents(work, part):
            size += len(text.encode())
            ids += [bos, *tokenizer.encode(text, add_special_tokens=False).ids, eos]
        np.array(ids, dtype=np.uint16).tofile(work / f"{part}.u16")
        print(part, len(ids), "tokens,", round(size / len(ids), 3), "bytes per token")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
