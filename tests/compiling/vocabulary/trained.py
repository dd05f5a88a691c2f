"""Byte-pair encodings trained on this project's own documents, in a moment."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

DOCS = Path(__file__).parents[3] / "docs"
#: What a domain reads and writes, and other text of the same kind.
DOMAIN = (DOCS / "glossary.md").read_text(encoding="utf-8")[:4000]
HELDOUT = (DOCS / "runtime.md").read_text(encoding="utf-8")[:4000] + " naïve 日本 🙂 \x00\n"
SPECIAL = ["<s>", "</s>", "<pad>"]


@cache
def byte_level() -> str:
    """As GPT-2's, with BOS before every text."""
    built = tokenizers.Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    built.train_from_iterator([DOMAIN, HELDOUT], trainer)
    built.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
            ),
        ]
    )
    built.enable_padding(pad_id=2, pad_token="<pad>")
    built.add_special_tokens(["<end>"])  # behind all others
    return built.to_str()


@cache
def sentence_pieces() -> str:
    """As Llama 2's: characters, then bytes of those that are no token."""
    built = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    built.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    built.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    spelled = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", *SPECIAL, *spelled], show_progress=False
    )
    words = DOMAIN.replace(" ", " ▁").split(" ")
    built.train_from_iterator([*words, *HELDOUT.split()], trainer)
    data = json.loads(built.to_str())  # the trainer takes bytes for special tokens
    data["added_tokens"] = [one for one in data["added_tokens"] if one["content"] not in spelled]
    return json.dumps(data)
