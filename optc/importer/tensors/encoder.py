"""Folders of encoders for transformers and sentence-transformers, whose modules are called."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from optc.artifact.tasks.embedding import EMBEDDING
from optc.artifact.tasks.task import Task
from optc.errors import InputError, UnsupportedError
from optc.importer.capturing.recurrences import has_known
from optc.importer.json_file import read_object
from optc.importer.remote_code import check_remote_code
from optc.importer.tensors.folders.other_inputs import import_others, takes_more
from optc.importer.tensors.folders.sentence_folder import SentenceFolder
from optc.importer.tensors.folders.text_heads import head_of
from optc.importer.tensors.folders.text_reader import TextReader
from optc.importer.tensors.images import as_classifier, images_of_folder
from optc.importer.tensors.imported import ImportedTensors
from optc.importer.tensors.modules.dimensions import Dynamic
from optc.importer.tensors.modules.outputs import tensors_of
from optc.importer.tensors.program import import_module
from optc.importer.text_model.part import text_config
from optc.runtime.tensors.images import ImageInput
from optc.runtime.tensors.texts import TextScores
from optc.system.sources.dim import Dim
from optc.system.sources.encoder_folder import pools

#: Tokens of a text where neither config nor tokenizer bounds them, and of the example.
_MOST_TOKENS, _EXAMPLE = 512, (2, 11)
_NO_TOKENIZER = "the folder has no tokenizer: the artifact takes token ids, and no texts"
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
        return tensors_of(self.model(input_ids=input_ids, attention_mask=attention_mask))


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
        return tensors_of(found)


class _Pixels(torch.nn.Module):
    """A model of transformers over images."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return tensors_of(self.model(pixel_values=pixel_values))


def is_encoder(folder: Path) -> bool:
    """True if a folder that may have an encoder (`optc.system.sources.encoder_folder`) has one:
    sentence-transformers pools it, or its class is neither a decoder, nor the base of one, nor made
    of a decoder and others.

    Raises:
        InputError: config.json cannot be read.
    """
    if pools(folder):
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
    """The model in a folder: texts (ids, mask, and types of tokens where it has some), images, both
    together, or sounds.

    A folder of sentence-transformers gives ``embeddings``, pooled as its modules say, and the
    tokenizer goes with it: its artifact embeds texts. So does that of a class with a head whose
    artifact gives classes of texts or tokens, or ranks texts.

    Raises:
        InputError: transformers does not read the folder.
        UnsupportedError: It needs code of its own, or takes something else.
    """
    sentences = SentenceFolder.of(folder)
    inner = folder if sentences is None else sentences.encoder
    config = read_object(inner / "config.json")
    check_remote_code(inner, allowed=False)
    model = load_model(folder, config) if sentences is None else sentences.load()
    main = str(getattr(model, "main_input_name", ""))
    if main == "input_ids" and not takes_more(model):
        _check_states(folder, model)
        return _texts(folder, model, sentences)
    if main == "pixel_values":
        images, why_not = images_of_folder(folder, config)
        found = _images(folder, model, images)
        return replace(found, warnings=(why_not,)) if why_not else found
    return import_others(folder, model, _BATCH)


def _check_states(folder: Path, model: Any) -> None:
    """Refuse layers that carry a state from token to token, which padding would go into.

    Raises:
        UnsupportedError: The class has some.
    """
    if has_known(model.config):
        raise UnsupportedError(
            f"{type(model).__name__} has layers that carry a state from token to token: optc takes "
            "such layers in decoders alone",
            where=str(folder),
            hint="compile the model with its language model head (…ForCausalLM)",
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


def _texts(folder: Path, model: Any, sentences: SentenceFolder | None) -> ImportedTensors:
    inner = folder if sentences is None else sentences.encoder
    reader = TextReader.of(inner, lower=sentences is not None and sentences.lower)
    tokens = Dim("tokens", 1, _most_tokens(model, sentences, reader))
    module, count = _module(model, sentences, reader)
    shape = _EXAMPLE[0], min(_EXAMPLE[1], tokens.most)
    ids = torch.randint(0, model.config.vocab_size, shape, generator=_seeded())
    mask = torch.ones(shape, dtype=torch.int64)
    mask[1, 1 + shape[1] // 2 :] = 0
    args = (ids, mask, torch.zeros(shape, dtype=torch.int64))[:count]
    names = ("input_ids", "attention_mask", "token_type_ids")[:count]
    dynamic: Dynamic = {name: {0: _BATCH, 1: tokens} for name in names}
    found = import_module(module, folder.resolve().name, args, {}, dynamic)
    found = replace(found, padding=names[1])
    task, scores = _task(model, sentences)
    if task is None:
        return found
    if reader is None:
        return replace(found, warnings=(*found.warnings, _NO_TOKENIZER))
    return found.with_texts(task, reader.to_json(tokens.most), scores)


def _task(model: Any, sentences: SentenceFolder | None) -> tuple[Task | None, TextScores | None]:
    """The reading of texts: what it is for, and the scores that it gives."""
    if sentences is None:
        return head_of(type(model).__name__, model.config) or (None, None)
    return EMBEDDING, TextScores(prompt=sentences.prompt) if sentences.prompt else None


def text_module(folder: Path) -> tuple[torch.nn.Module, int]:
    """The module of a folder's encoder of texts, pooled as it says, and how many it takes of ids,
    mask and types of tokens; raises as `import_encoder`."""
    sentences = SentenceFolder.of(folder)
    inner = folder if sentences is None else sentences.encoder
    config = read_object(inner / "config.json")
    model = load_model(folder, config) if sentences is None else sentences.load()
    return _module(model, sentences, TextReader.of(inner))


def _module(
    model: Any, sentences: SentenceFolder | None, reader: TextReader | None
) -> tuple[torch.nn.Module, int]:
    """The module of the outputs, and how many it takes of ids, mask and types of tokens."""
    typed = _is_typed(model) and (reader is None or reader.typed)
    module = (_TypedTexts if typed else _Texts)(model)
    return module if sentences is None else sentences.pooled(module), 2 + typed


def _is_typed(model: Any) -> bool:
    named = "token_type_ids" in inspect.signature(model.forward).parameters
    return named and getattr(model.config, "type_vocab_size", 0) > 1


def _most_tokens(model: Any, sentences: SentenceFolder | None, reader: TextReader | None) -> int:
    """Tokens of a text that the positions hold; fewer where the tokenizer, or before it
    sentence-transformers' own settings, say so."""
    stated = None if reader is None else reader.most
    if sentences is not None and sentences.most is not None:
        stated = sentences.most
    positions = getattr(model.config, "max_position_embeddings", None) or 0
    if positions <= 0:  # none, or no table of them
        return stated or _MOST_TOKENS
    tables = [one for one in model.modules() if isinstance(one, torch.nn.Embedding)]
    for table in tables[1:]:  # behind that of tokens
        # Positions with a row of padding count from behind it, as RoBERTa's do.
        if table.num_embeddings == positions and table.padding_idx is not None:
            positions -= table.padding_idx + 1
            break
    return min(int(positions), stated or int(positions))


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
