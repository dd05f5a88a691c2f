"""A GGUF file as a model folder: config, tokenizer and a link to the file.

Everything that takes a model takes its folder; so the folder of a GGUF file is made once, in the
user's cache, out of the file's metadata. Weights are not copied.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from optc.importer.folders.made_folder import made_folder
from optc.importer.gguf.added_tokens import apply_added_tokens
from optc.importer.gguf.file import (
    SUFFIX,
    check_package,
    files_of,
    metadata_of,
    open_gguf,
    vocabulary_of,
)
from optc.importer.gguf.pre_tokenizer import apply_pre_tokenizer
from optc.importer.gguf.vocabulary import TOKENS, check_vocabulary
from optc.system.cache_folder import cache_folder
from optc.system.foreign.errors import foreign_errors
from optc.system.processes.process_memory import give_back_freed
from optc.system.progress import tell

#: Which part of a list's field has its length.
_COUNT = 4
#: PyTorch and transformers in memory, and what transformers' reader and converter take of a token
#: of the vocabulary (measured: 49,152 and 262,144 tokens).
_PACKAGES_BYTES, _BYTES_OF_A_TOKEN = 270 << 20, 3000
#: Raised if what the folder holds for one file changes.
_LAYOUT = 5


def is_gguf(path: Path) -> bool:
    """True if a path names a GGUF file that exists."""
    return path.suffix == SUFFIX and path.is_file()


def gguf_folder(file: Path) -> Path:
    """The model folder of ``file``, made unless it is there.

    Raises:
        InputError: The file is damaged or not complete.
        UnsupportedError: transformers has no decoder for it, or no tokenizer.
        UnavailableError: The package that reads GGUF is missing.
    """
    check_package()
    files = files_of(file)
    folder = _place(files)
    if (folder / "config.json").is_file():
        return folder
    tell("settings and tokenizer of the GGUF file", 0, 0)
    try:
        return made_folder(folder, lambda made: _fill(made, files))
    finally:
        give_back_freed()  # transformers makes texts and lists of the whole vocabulary


def making_bytes(file: Path) -> int:
    """Memory that `gguf_folder` is predicted to take for ``file``; 0 where the folder is there.

    Raises:
        InputError, UnavailableError: As `gguf_folder`.
    """
    if (_place(files_of(file)) / "config.json").is_file():
        return 0
    field = open_gguf(file).fields.get(TOKENS)
    tokens = 0 if field is None or len(field.parts) <= _COUNT else int(field.parts[_COUNT][0])
    return _PACKAGES_BYTES + _BYTES_OF_A_TOKEN * tokens


def _place(files: list[Path]) -> Path:
    return cache_folder() / "gguf" / _key(files) / files[0].name.removesuffix(SUFFIX)


def _key(files: list[Path]) -> str:
    """The key of the folder: a digest of the files, as they are now, and of package versions."""
    parts: list[Any] = [_LAYOUT, version("transformers"), version("gguf")]
    for one in files:
        stat = one.stat()
        parts.append([str(one.resolve()), stat.st_size, stat.st_mtime_ns])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _fill(folder: Path, files: list[Path]) -> None:
    from optc.importer.gguf.config import end_tokens, read_gguf_config
    from optc.importer.gguf.reader import read_once

    for one in files:
        (folder / one.name).symlink_to(one.resolve())
    where = str(files[0])
    reader = open_gguf(files[0])
    metadata = metadata_of(reader)
    with read_once():
        if TOKENS in metadata:
            vocabulary = vocabulary_of(reader)
            check_vocabulary(vocabulary, where)
            write_tokenizer(folder, files[0], vocabulary)
        with foreign_errors(where, "the metadata is not complete", "download it again"):
            _write(folder / "config.json", read_gguf_config(files[0], metadata))
            ends = end_tokens(metadata)
    if ends:
        _write(folder / "generation_config.json", {"eos_token_id": ends})


def _write(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_tokenizer(folder: Path, file: Path, vocabulary: Mapping[str, Any]) -> None:
    """Write tokenizer.json and its settings into the folder that holds ``file``.

    Args:
        folder: Holds the file.
        file: GGUF.
        vocabulary: Its metadata of the tokenizer.

    Raises:
        InputError, UnsupportedError: transformers makes none of it, or it cuts texts in a way that
            is not known.
    """
    from transformers import AutoTokenizer

    with foreign_errors(
        str(file),
        "transformers makes no tokenizer of its metadata",
        "download it again",
        unsupported=(NotImplementedError, ImportError),
    ):
        tokenizer = AutoTokenizer.from_pretrained(
            folder, gguf_file=file.name, local_files_only=True
        )
        tokenizer.save_pretrained(folder)
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    apply_added_tokens(content, vocabulary)
    apply_pre_tokenizer(content, vocabulary, str(file))
    text = json.dumps(content, ensure_ascii=False) + "\n"
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
