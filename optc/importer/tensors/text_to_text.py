"""Folders of encoder-decoders of text: their graphs, tokenizer and conventions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES

from optc.errors import ArtifactError, InputError, UnsupportedError
from optc.importer.json_file import read_object
from optc.importer.remote_code import check_remote_code
from optc.importer.tensors.encoder import load_model
from optc.importer.tensors.encoder_decoder import ImportedEncoderDecoder, import_encoder_decoder
from optc.importer.tensors.generation_settings import text_settings
from optc.runtime.text_to_text.conventions import TextConventions
from optc.system.foreign.file import is_file
from optc.system.foreign.typed_json import typed
from optc.system.sources.dim import Dim

_TOKENIZER = "tokenizer.json"
#: Tokens of a text where positions are relative, so that no table bounds them.
_MOST_TOKENS = 4096
#: Texts and tokens of the example, of which the second text has fewer.
_EXAMPLE, _FEWER = (2, 11), 3
#: Names of tokens of languages: ``deu_Latn``, ``de_DE``, ``__de__``.
_LANGUAGE = re.compile(r"([a-z]{2,3}_[A-Z][A-Za-z]{1,3})|__([a-z]{2,3})__")
#: Names of a bound of positions in configs: of the encoder, and of the decoder.
_SOURCE = ("max_encoder_position_embeddings", "max_position_embeddings")
_TARGET = ("max_decoder_position_embeddings", "max_position_embeddings")


@dataclass(frozen=True)
class ImportedTextToText:
    """A model that turns texts into texts.

    Attributes:
        models: Encoder and decoder.
        conventions: Of its tokens.
        tokenizer: JSON.
        name: Of the model.
        digest: sha256 in hex of both graphs and their weights.
        warnings: What the user should know.
    """

    models: ImportedEncoderDecoder
    conventions: TextConventions
    tokenizer: str
    name: str
    digest: str
    warnings: tuple[str, ...] = ()


def is_text_to_text(folder: Path) -> bool:
    """True if the class that config.json names is one that transformers lists as turning sequences
    into text, and there is an encoder and a decoder (`optc.system.sources.text_to_text_folder`).

    Raises:
        InputError: config.json cannot be read.
    """
    name = read_object(folder / "config.json")["architectures"][0]
    return name in set(MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.values())


def import_text_to_text(folder: Path) -> ImportedTextToText:
    """The model in a folder for transformers.

    Raises:
        InputError: A file is missing or cannot be read.
        UnsupportedError: It needs code of its own, its input is no text, its tokenizer has no form
            in JSON, or its decoder cannot be captured.
    """
    config = read_object(folder / "config.json")
    check_remote_code(folder, allowed=False)
    content = _tokenizer(folder)
    model = load_model(folder, config)
    if (main := str(getattr(model, "main_input_name", ""))) != "input_ids":
        raise UnsupportedError(
            f"its input is {main or 'unknown'}, and texts are read as input_ids", where=str(folder)
        )
    settings, warnings = text_settings(model, folder)
    if config.get("task_specific_params"):
        warnings.append(
            "task_specific_params of config.json are not followed: texts need their prefix, and "
            "requests their max_tokens"
        )
    source, target = _bound(model.config, _SOURCE), _bound(model.config, _TARGET)
    name = folder.resolve().name
    ids = torch.randint(0, model.config.vocab_size, _EXAMPLE, generator=_seeded())
    mask = torch.ones(_EXAMPLE, dtype=torch.int64)
    mask[1, -_FEWER:] = 0
    bounds = _Bounds(Dim("source", 1, source), target)
    try:
        models = bounds.import_encoder_decoder(model, name, (ids, mask))
    except UnsupportedError:
        # PyTorch's own attention does not export with every kind of bias; spelled out, it does
        model.set_attn_implementation("eager")
        models = bounds.import_encoder_decoder(model, name, (ids, mask))
    found = {
        **settings,
        "most_tokens": max(1, min(settings["most_tokens"], bounds.positions)),
        "positions": bounds.positions,
        "source": source,
        "languages": _languages(content),
    }
    try:
        conventions = typed(found, TextConventions, str(folder))
    except ArtifactError as error:
        raise InputError(error.message, where=error.where) from error
    both = models.encoder.digest + models.decoder.digest
    digest = hashlib.sha256(both.encode()).hexdigest()
    return ImportedTextToText(models, conventions, content, name, digest, tuple(warnings))


@dataclass(frozen=True)
class _Bounds:
    """Sizes of calls. Tables of positions may grow where a call needs more than they have, so that
    the tokens of a step and of its past together are never more.

    Attributes:
        source: Tokens of a text that is read.
        target: Positions of the decoder.
    """

    source: Dim
    target: int

    @property
    def step(self) -> int:
        """Tokens of a step."""
        return max(4, min(64, self.target // 8))

    @property
    def positions(self) -> int:
        """Tokens of a text with its start: all before the last are its past."""
        return self.target - self.step + 1

    def import_encoder_decoder(
        self, model: Any, name: str, example: tuple[torch.Tensor, torch.Tensor]
    ) -> ImportedEncoderDecoder:
        past = self.target - self.step
        return import_encoder_decoder(model, name, example, past, self.source, self.step)


def _bound(config: Any, names: tuple[str, ...]) -> int:
    """Tokens that a table of positions holds."""
    stated = (getattr(config, name, None) for name in names)
    return next((int(one) for one in stated if one), _MOST_TOKENS)


def _tokenizer(folder: Path) -> str:
    """The tokenizer as JSON, without truncation and padding; where the folder has its parts alone,
    transformers puts them together, if it can."""
    file = folder / _TOKENIZER
    if is_file(file):
        reader = _read(lambda: tokenizers.Tokenizer.from_file(str(file)), file)
    else:
        import transformers

        reader = _read(
            lambda: (
                transformers.AutoTokenizer.from_pretrained(
                    folder, local_files_only=True
                ).backend_tokenizer
            ),
            folder,
        )
    reader.no_truncation()
    reader.no_padding()
    return str(reader.to_str())


def _read(load: Any, where: Path) -> Any:
    try:
        return load()
    except Exception as error:  # both libraries raise what they like at what they do not know
        text = " ".join(str(error).split())[:200]
        raise UnsupportedError(
            f"its tokenizer is not read: {type(error).__name__}: {text}",
            where=str(where),
            hint=f"put a {_TOKENIZER} of the package tokenizers into the folder; transformers "
            "makes none of a vocabulary for sentencepiece alone, as Marian and M2M100 have it",
        ) from error


def _languages(content: str) -> Mapping[str, int]:
    """Tokens of languages by their codes, of those that stand apart from words."""
    reader = tokenizers.Tokenizer.from_str(content)
    found = {}
    for token, added in reader.get_added_tokens_decoder().items():
        if match := _LANGUAGE.fullmatch(added.content):
            found[match[1] or match[2]] = token
    return dict(sorted(found.items()))


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)
