"""Folders of encoders for transformers and sentence-transformers, whose modules are called."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from optc.artifact.tasks.embedding import EMBEDDING
from optc.errors import InputError, UnsupportedError
from optc.importer.json_file import read_object
from optc.importer.remote_code import check_remote_code
from optc.importer.tensors.images import as_classifier, images_of_folder
from optc.importer.tensors.imported import ImportedTensors
from optc.importer.tensors.pooling import Pooled
from optc.importer.tensors.program import Dynamic, import_module
from optc.importer.tensors.text_heads import head_of_folder
from optc.importer.text_model.part import text_config
from optc.runtime.tensors.images import ImageInput
from optc.system.sources.dim import Dim
from optc.system.sources.encoder_folder import MODULES

_TOKENIZER = "tokenizer.json"
#: Tokens of a text where neither config nor tokenizer bounds them, and of the example.
_MOST_TOKENS, _EXAMPLE = 512, (2, 11)
#: Texts, images or sounds of a call.
_BATCH = Dim("batch", 1, 1024)


class _Texts(torch.nn.Module):
    """A model of transformers over ids and mask."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        return _tensors(self.model(input_ids=input_ids, attention_mask=attention_mask))


class _TypedTexts(_Texts):
    """The same with types of tokens, for pairs of texts."""

    def forward(  # type: ignore[override]  # exports go by the signature
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        found = self.model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        return _tensors(found)


class _Pixels(torch.nn.Module):
    """A model of transformers over images."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return _tensors(self.model(pixel_values=pixel_values))


def _tensors(found: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: one for name, one in found.items() if isinstance(one, torch.Tensor)}


def is_encoder(folder: Path) -> bool:
    """True if a folder that may have an encoder (`optc.system.sources.encoder_folder`) has one: it
    is sentence-transformers', or its class is neither a decoder, nor the base of one, nor made of a
    decoder and others.

    Raises:
        InputError: config.json cannot be read.
    """
    if (folder / MODULES).is_file():
        return True
    name = str(read_object(folder / "config.json")["architectures"][0])
    known = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    if name in known or f"{name.removesuffix('Model')}ForCausalLM" in known:
        return False
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return text_config(config) is None


def import_encoder(folder: Path) -> ImportedTensors:
    """The model in a folder: texts (ids, mask, and types of tokens where it has some) or images.

    A folder of sentence-transformers gives ``embeddings``, pooled as its modules say, and the
    tokenizer goes with it: its artifact embeds texts. So does that of a class with a head whose
    artifact gives classes of texts or tokens, or ranks texts.

    Raises:
        InputError: transformers does not read the folder.
        UnsupportedError: It needs code of its own, or its inputs are neither texts nor images.
    """
    config = read_object(folder / "config.json")
    check_remote_code(folder, allowed=False)
    model = load_model(folder, config)
    main = str(getattr(model, "main_input_name", ""))
    if main == "input_ids":
        return _texts(folder, model, config)
    if main == "pixel_values":
        images, why_not = images_of_folder(folder, config)
        found = _images(folder, model, images)
        return replace(found, warnings=(why_not,)) if why_not else found
    raise UnsupportedError(
        f"its input is {main or 'unknown'}, and folders of encoders read texts or images",
        where=str(folder),
        hint="give the module: package.module:factory (docs/how-to/compile-any-module.md)",
    )


def load_model(folder: Path, config: Mapping[str, Any]) -> Any:
    """transformers' model of a folder, in float32.

    Raises:
        InputError: transformers does not read it.
        UnsupportedError: transformers has no such class.
    """
    name = config["architectures"][0]
    kind = getattr(transformers, name, None)
    if kind is None:
        raise UnsupportedError(f"transformers has no class {name}", where=str(folder))
    try:
        return kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    except Exception as error:  # transformers raises what its classes raise at odd configs
        text = " ".join(str(error).split())[:300]
        raise InputError(
            f"transformers does not read it: {type(error).__name__}: {text}", where=str(folder)
        ) from error


def _texts(folder: Path, model: Any, config: Mapping[str, Any]) -> ImportedTensors:
    tokens = Dim("tokens", 1, _most_tokens(folder, model))
    typed = _is_typed(model)
    ids = torch.randint(0, model.config.vocab_size, _EXAMPLE, generator=_seeded())
    mask = torch.ones(_EXAMPLE, dtype=torch.int64)
    mask[1, -3:] = 0
    args = (ids, mask, *([torch.zeros(_EXAMPLE, dtype=torch.int64)] if typed else []))
    module = (_TypedTexts if typed else _Texts)(model)
    pooled = Pooled.of(folder, module)
    names = ("input_ids", "attention_mask", "token_type_ids")[: len(args)]
    dynamic: Dynamic = {name: {0: _BATCH, 1: tokens} for name in names}
    found = import_module(pooled or module, folder.resolve().name, args, {}, dynamic)
    found = replace(found, padding=names[1])
    head = head_of_folder(config)
    if (pooled is None and head is None) or not (folder / _TOKENIZER).is_file():
        return found
    reader = _tokenizer(folder, model.config, tokens.most)
    if pooled is not None or head is None:
        return found.with_texts(EMBEDDING, reader)
    task, scores = head
    return found.with_texts(task, reader, scores)


def text_module(folder: Path) -> tuple[torch.nn.Module, int]:
    """The module of a folder's encoder of texts, pooled as it says, and how many it takes of ids,
    mask and types of tokens; raises as `import_encoder`."""
    model = load_model(folder, read_object(folder / "config.json"))
    typed = _is_typed(model)
    module = (_TypedTexts if typed else _Texts)(model)
    return Pooled.of(folder, module) or module, 2 + typed


def _is_typed(model: Any) -> bool:
    named = "token_type_ids" in inspect.signature(model.forward).parameters
    return named and getattr(model.config, "type_vocab_size", 0) > 1


def _tokenizer(folder: Path, config: Any, most: int) -> str:
    """The tokenizer with truncation and padding, as JSON."""
    reader = tokenizers.Tokenizer.from_file(str(folder / _TOKENIZER))
    pad = int(getattr(config, "pad_token_id", None) or 0)
    reader.enable_truncation(most)
    reader.enable_padding(pad_id=pad, pad_token=reader.id_to_token(pad) or "")
    return reader.to_str()


def _most_tokens(folder: Path, model: torch.nn.Module) -> int:
    """Tokens of a text that the positions, and sentence-transformers' own bound, hold."""
    config: Any = model.config
    positions = getattr(config, "max_position_embeddings", None) or _MOST_TOKENS
    tables = [one for one in model.modules() if isinstance(one, torch.nn.Embedding)]
    for table in tables[1:]:  # behind that of tokens
        # Positions with a row of padding count from behind it, as RoBERTa's do.
        if table.num_embeddings == positions and table.padding_idx is not None:
            positions -= table.padding_idx + 1
            break
    own = folder / "sentence_bert_config.json"
    stated = read_object(own).get("max_seq_length") if own.is_file() else None
    return min(positions, stated) if isinstance(stated, int) else int(positions)


def _images(folder: Path, model: Any, images: ImageInput | None) -> ImportedTensors:
    size = getattr(model.config, "image_size", 224)
    if images is not None and images.result is not None:
        size = images.result  # nets of convolutions alone state no size
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = getattr(model.config, "num_channels", 3)
    pixels = torch.randn(2, channels, height, width, generator=_seeded())
    name = folder.resolve().name
    dynamic: Dynamic = {"pixel_values": {0: _BATCH}}
    found = import_module(_Pixels(model), name, (pixels,), {}, dynamic)
    if images is None:
        return found
    return as_classifier(replace(found, samples=()), images)


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)
