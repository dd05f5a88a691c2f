"""A tokenizer.json as the tokenizer of a GGUF file: byte-level BPE, which such files call gpt2."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import TokenizerEntry
from optc.errors import InputError, UnsupportedError
from optc.importer.gguf.pre_tokenizer import name_of

if TYPE_CHECKING:
    from gguf import GGUFWriter


def check_tokenizer(artifact: Artifact) -> None:
    """Check that the tokenizer of an artifact has a name in GGUF.

    Raises:
        InputError: The artifact has no tokenizer.
        UnsupportedError: It is of another kind.
    """
    _readable(artifact)


def add_tokenizer(
    writer: GGUFWriter, artifact: Artifact, vocabulary: int, unknown: int | None = None
) -> None:
    """Write the tokenizer of an artifact, and the tokens around it.

    Args:
        writer: Of the file.
        artifact: Where it is.
        vocabulary: Rows of the embedding.
        unknown: The token that stands for what has none.

    Raises:
        InputError: The artifact has no tokenizer.
        UnsupportedError: It is of another kind.
    """
    entry, read, split = _readable(artifact)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    _add_tokens(writer, read, vocabulary)
    merges = read["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    _add_ends(writer, entry, read)
    if unknown is not None:
        writer.add_unk_token_id(unknown)
    template = artifact.chat_template()
    if template:
        writer.add_chat_template(template)


def _readable(artifact: Artifact) -> tuple[TokenizerEntry, dict[str, Any], str]:
    """The artifact's entry, its tokenizer.json, and how it splits texts."""
    entry, file = artifact.manifest.tokenizer, artifact.tokenizer_file()
    if entry is None or file is None:
        raise InputError(
            "the artifact has no tokenizer, and readers of GGUF need one",
            where=str(artifact.path),
            hint="use --format compressed-tensors",
        )
    read: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    model = read.get("model") or {}
    split = _split(read)
    if model.get("type") != "BPE" or model.get("byte_fallback") or split is None:
        raise UnsupportedError(
            f"GGUF has no name for this tokenizer ({model.get('type')}): optc writes byte-level "
            "BPE that cuts texts as that of gpt-2, smollm, llama-bpe, qwen2 or another known one",
            where=str(file),
            hint="--tokenizer-from FILE takes that of a GGUF file of the same model; or use "
            "--format compressed-tensors",
        )
    return entry, read, split


def _add_tokens(writer: GGUFWriter, read: dict[str, Any], vocabulary: int) -> None:
    from gguf import TokenType

    names = {index: token for token, index in read["model"]["vocab"].items()}
    kinds = dict.fromkeys(names, TokenType.NORMAL)
    for one in read.get("added_tokens", []):
        names[one["id"]] = one["content"]
        kinds[one["id"]] = TokenType.CONTROL if one["special"] else TokenType.USER_DEFINED
    every = range(max(vocabulary, 1 + max(names)))
    writer.add_token_list([names.get(index, f"[PAD{index}]") for index in every])
    writer.add_token_types([kinds.get(index, TokenType.UNUSED) for index in every])


def _add_ends(writer: GGUFWriter, entry: TokenizerEntry, read: dict[str, Any]) -> None:
    if entry.bos_token_id is not None:
        writer.add_bos_token_id(entry.bos_token_id)
    ends = dict(zip((writer.add_eos_token_id, writer.add_eot_token_id, writer.add_eom_token_id),
                    entry.eos_token_ids, strict=False))  # fmt: skip
    for add, token in ends.items():
        add(token)
    padding = [one["id"] for one in read.get("added_tokens", []) if "pad" in one["content"].lower()]
    if padding:
        writer.add_pad_token_id(padding[0])
    writer.add_add_bos_token(entry.add_bos)


def _split(read: dict[str, Any]) -> str | None:
    """The name of how texts are split; None if it is another way, or not by bytes."""
    if read.get("normalizer") not in (None, {"type": "NFC"}):
        return None
    return name_of(read)
