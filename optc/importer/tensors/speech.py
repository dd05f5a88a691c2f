"""Folders of models that write down speech: their graphs, tokenizer and conventions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch

from optc.errors import ArtifactError, InputError, UnsupportedError
from optc.importer.json_file import read_object
from optc.importer.remote_code import check_remote_code
from optc.importer.tensors.encoder import load_model
from optc.importer.tensors.encoder_decoder import ImportedEncoderDecoder, import_encoder_decoder
from optc.runtime.audio.conventions import Conventions
from optc.runtime.audio.mel import LogMel
from optc.system.foreign.errors import foreign_errors
from optc.system.foreign.file import is_file
from optc.system.foreign.typed_json import typed
from optc.system.sources.speech_folder import PREPROCESSORS

_TOKENIZER, _GENERATION = "tokenizer.json", "generation_config.json"
#: The one kind of features that is known, by the name of transformers' class.
_LOG_MEL = "WhisperFeatureExtractor"
#: Keys of its configuration by the fields of `LogMel`.
_FEATURES = {
    "sampling_rate": "rate",
    "feature_size": "mels",
    "n_fft": "window",
    "hop_length": "hop",
    "chunk_length": "seconds",
}
#: Sounds of the example.
_EXAMPLE = 2


@dataclass(frozen=True)
class ImportedSpeech:
    """A model that writes down speech.

    Attributes:
        models: Encoder and decoder.
        conventions: Of its features and tokens.
        tokenizer: JSON.
        name: Of the model.
        digest: sha256 in hex of both graphs and their weights.
    """

    models: ImportedEncoderDecoder
    conventions: Conventions
    tokenizer: str
    name: str
    digest: str


def import_speech(folder: Path) -> ImportedSpeech:
    """The model in a folder for transformers.

    Raises:
        InputError: A file is missing or cannot be read.
        UnsupportedError: It needs code of its own, features of another kind, or a decoder that
            cannot be captured.
    """
    config = read_object(folder / "config.json")
    check_remote_code(folder, allowed=False)
    features = _features(folder)
    content = _tokenizer(folder)
    model = load_model(folder, config)
    if features.mels != (mels := getattr(model.config, "num_mel_bins", features.mels)):
        raise InputError(
            f"its features have {features.mels} rows, and the model takes {mels}", where=str(folder)
        )
    name, most = folder.resolve().name, int(getattr(model.config, "max_target_positions", 448))
    shape = (_EXAMPLE, features.mels, features.frames)
    example = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    models = import_encoder_decoder(model, name, (example,), most)
    positions = models.encoder.interface.outputs[0].dims[2]
    conventions = _conventions(folder, config, content, features, most)
    if isinstance(positions, int):
        conventions = _with(conventions, precision=features.seconds / positions)
    conventions = _with(conventions, layers=models.layers)
    both = models.encoder.digest + models.decoder.digest
    digest = hashlib.sha256(both.encode()).hexdigest()
    return ImportedSpeech(models, conventions, content, name, digest)


def import_conventions(folder: Path) -> Conventions:
    """The conventions of a folder's tokens alone; the layers and times are usual ones.

    Raises:
        InputError: A file is missing or cannot be read.
        UnsupportedError: Its features are of another kind.
    """
    config = read_object(folder / "config.json")
    most = int(config.get("max_target_positions", 448))
    return _conventions(folder, config, _tokenizer(folder), _features(folder), most)


def _features(folder: Path) -> LogMel:
    file = next((folder / name for name in PREPROCESSORS if is_file(folder / name)), None)
    if file is None:
        raise InputError(
            f"no {PREPROCESSORS[0]} says how sound becomes the model's input",
            where=str(folder),
            hint="get that file of the model, too",
        )
    stated = read_object(file)
    stated = stated.get("feature_extractor", stated)
    if not isinstance(stated, dict):
        raise InputError("its feature_extractor is no object", where=str(file))
    kind = stated.get("feature_extractor_type", _LOG_MEL)
    if kind != _LOG_MEL:
        raise UnsupportedError(
            f"its features are those of {str(kind)[:100]}",
            where=str(file),
            hint=f"only those of {_LOG_MEL} are known",
        )
    found = {ours: stated[theirs] for theirs, ours in _FEATURES.items() if theirs in stated}
    return _typed(found, LogMel, file)


def _tokenizer(folder: Path) -> str:
    """The tokenizer as JSON; older folders have its parts alone, which transformers puts
    together."""
    file = folder / _TOKENIZER
    if is_file(file):
        with foreign_errors(str(file), "is no tokenizer"):
            return str(tokenizers.Tokenizer.from_file(str(file)).to_str())
    import transformers

    with foreign_errors(str(folder), "transformers finds no tokenizer in it"):
        found = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return str(found.backend_tokenizer.to_str())


def _conventions(
    folder: Path, config: Mapping[str, Any], content: str, features: LogMel, most: int
) -> Conventions:
    """As generation_config.json says, else config.json, else the names of the tokens."""
    file = folder / _GENERATION
    stated = {**config, **(read_object(file) if is_file(file) else {})}
    known = tokenizers.Tokenizer.from_str(content)
    times = stated.get("no_timestamps_token_id", known.token_to_id("<|notimestamps|>"))
    many = stated.get("is_multilingual", "lang_to_id" in stated)
    end = stated.get("eos_token_id")
    found = {
        "features": {name: getattr(features, name) for name in features.__struct_fields__},
        "start": stated.get("decoder_start_token_id"),
        "end": end[0] if isinstance(end, list) and end else end,
        "languages": _languages(stated, known) if many else {},
        "tasks": _tasks(stated, known) if many else {},
        "no_timestamps": times,
        "no_speech": None if times is None else times - 1,
        "suppressed": stated.get("suppress_tokens") or (),
        "suppressed_first": stated.get("begin_suppress_tokens") or (),
        "most_tokens": most,
        "most_first_time": stated.get("max_initial_timestamp_index"),
    }
    return _typed(found, Conventions, file if is_file(file) else folder / "config.json")


def _languages(stated: Mapping[str, Any], known: tokenizers.Tokenizer) -> Any:
    tokens = stated.get("lang_to_id")
    if tokens is None:  # they stand between the start and the tasks
        first, last = stated.get("decoder_start_token_id"), known.token_to_id("<|translate|>")
        if not isinstance(first, int) or last is None:
            return {}
        tokens = {known.id_to_token(token): token for token in range(first + 1, last)}
    return {str(name).strip("<|>"): token for name, token in tokens.items()}


def _tasks(stated: Mapping[str, Any], known: tokenizers.Tokenizer) -> Any:
    tokens = stated.get("task_to_id")
    if tokens is None:
        names = {name: known.token_to_id(f"<|{name}|>") for name in ("transcribe", "translate")}
        return {name: token for name, token in names.items() if token is not None}
    return tokens


def _typed(found: Mapping[str, Any], kind: type[Any], file: Path) -> Any:
    try:
        return typed(found, kind, str(file))
    except ArtifactError as error:
        raise InputError(error.message, where=error.where) from error


def _with(conventions: Conventions, **changes: Any) -> Conventions:
    import msgspec

    return msgspec.structs.replace(conventions, **changes)
