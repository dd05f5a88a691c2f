"""Tokenizers built in code, and those of trained models."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from optc.runtime.text.tokenizer import Tokenizer, read_tokenizer

_HERE = Path(__file__).parent
_FILES = {
    "pycode": _HERE.parents[2] / "examples/models/pycode/tokenizer.json",
    **{path.stem: path for path in sorted((_HERE / "tokenizers").glob("*.json"))},
}
#: Names of tokenizers that others trained (tokenizers/README.md), and of the example model's.
REAL = tuple(_FILES)
#: Characters of 1 to 4 bytes, a composed emoji and right-to-left text.
TEXTS = (
    "def fib(n):\n    return n",
    "naïve café, 10 €",
    "日本語のテキスト",
    "🙂🙃👩‍👩‍👧 end",
    "שלום, мир\n\n\tx",
    "  leading and   inner spaces ",
)


def byte_level(*, bos: bool = False) -> tokenizers.Tokenizer:
    """One token a byte (ids 3 to 258) after the special tokens <s> 0, </s> 1, <pad> 2."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<s>": 0, "</s>": 1, "<pad>": 2} | {c: i + 3 for i, c in enumerate(alphabet)}
    built = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(["<s>", "</s>", "<pad>"])
    if bos:
        built.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    return built


def byte_fallback() -> tokenizers.Tokenizer:
    """As SentencePiece: words start with ▁, unknown characters become <0x..> bytes, and the
    first space of a text is dropped."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"abcdefghijklmnopqrstuvwxyz"]
    built = tokenizers.Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[],
            byte_fallback=True,
            unk_token="<unk>",
            fuse_unk=True,
        )
    )
    built.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(Regex(" "), "▁")]
    )
    built.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    built.add_special_tokens(["<unk>", "<s>", "</s>"])
    return built


def real_tokenizer(name: str) -> Tokenizer:
    """A tokenizer of a trained model, one of `REAL`."""
    return Tokenizer(read_tokenizer(_FILES[name]))
