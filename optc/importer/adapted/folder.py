"""The folder of a model that an adapter makes of its base: links to the weights of both.

Nothing is merged here. The importer finds the adapter in the folder and merges tensors as it reads
them, so that no whole model is in memory, and no second copy on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.importer.adapted.tensors import adapter_tensors, replaced_rows
from optc.importer.config import CONFIG_FILE
from optc.importer.folders.made_folder import made_folder
from optc.importer.json_file import read_object
from optc.importer.text_model.stated import decoder_part
from optc.importer.tokenizer_files import MORE_TEMPLATES, TOKENIZER_FILES
from optc.system.cache_folder import cache_folder
from optc.system.sources import adapter as peft
from optc.system.sources.recognize import READ_WEIGHTS, names_in

#: Of the made folder: where the adapter's own files are.
ADAPTER = "optc-adapter"
#: Settings of an adapter that say where things lay and what wrote them.
_OF_A_PLACE = ("base_model_name_or_path", "peft_version", "revision")
#: Any of these makes a tokenizer.
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
#: Files of the adapter that are not its tokenizer and still go before the base's.
_ALONE = ("chat_template.jinja", "generation_config.json")
#: Raised if what the folder holds for one adapter changes.
_LAYOUT = 1


def is_adapter_folder(path: Path) -> bool:
    """True for an adapter's folder that is no model with an adapter beside it."""
    return path.is_dir() and peft.is_adapter(names_in(path), READ_WEIGHTS)


def stated_base(adapter: Path) -> str:
    """The model that the adapter in ``adapter`` names as its base: a path, or a name of the Hub.

    Raises:
        InputError, UnsupportedError: As `optc.system.sources.adapter.read_adapter_config`, or it
            names none.
    """
    config = peft.read_adapter_config(adapter)
    base, revision = config.get("base_model_name_or_path"), config.get("revision")
    if not isinstance(base, str) or not base:
        raise InputError(
            "the adapter does not say of which model it is",
            where=str(adapter / peft.CONFIG_FILE),
            hint="name it: --base MODEL",
        )
    for place in (Path(base), adapter / base):
        if place.exists():
            return str(place)
    return f"{base}@{revision}" if isinstance(revision, str) and revision else base


def merged_folder(adapter: Path, base: Path, name: str) -> Path:
    """The folder, called ``name``, of the model that ``adapter`` makes of the model in ``base``.

    Raises:
        InputError, UnsupportedError: The adapter cannot be merged, or the base is one itself.
    """
    config = peft.read_adapter_config(adapter)
    if (base / ADAPTER).is_dir():
        raise InputError(
            "the base is itself an adapter with its base, and one is merged at a time",
            where=str(base),
            hint="merge that one with PEFT first: merge_and_unload, then save_pretrained",
        )
    adapter, base = adapter.absolute(), base.absolute()
    place = cache_folder() / "adapted" / _key(adapter, base) / name
    return made_folder(place, lambda made: _fill(made, adapter, base, config))


def adapter_files(folder: Path) -> list[Path]:
    """The files of the adapter that is merged into the model in ``folder``; empty without one."""
    own = folder / ADAPTER
    return [own / peft.CONFIG_FILE, peft.weights_of(own)] if own.is_dir() else []


def _key(adapter: Path, base: Path) -> str:
    """The files that the folder depends on, as they are now."""
    parts: list[Any] = [_LAYOUT]
    for folder in (adapter, base):
        for file in sorted(_files(folder)):
            stat = file.stat()
            parts.append([str(file), stat.st_size, stat.st_mtime_ns])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.iterdir() if file.is_file())


def _fill(made: Path, adapter: Path, base: Path, config: Mapping[str, Any]) -> None:
    for file in _files(base):
        if file.name != CONFIG_FILE and file.name not in TOKENIZER_FILES:
            (made / file.name).symlink_to(file)
    _link_tokenizer(made, adapter, base)
    weights = peft.weights_of(adapter)
    (made / ADAPTER).mkdir()
    (made / ADAPTER / weights.name).symlink_to(weights)
    kept = {key: value for key, value in config.items() if key not in _OF_A_PLACE}
    _write(made / ADAPTER / peft.CONFIG_FILE, kept)
    model = read_object(base / CONFIG_FILE)
    _resize(model, weights)
    _write(made / CONFIG_FILE, model)


def _link_tokenizer(made: Path, adapter: Path, base: Path) -> None:
    """The tokenizer of the adapter as a whole, else that of the base."""
    own = any((adapter / name).is_file() for name in _TOKENIZERS)
    for name in (*TOKENIZER_FILES, MORE_TEMPLATES):
        first = adapter if own or name in _ALONE else base
        order = [first, base] if name in _ALONE and not (own and "template" in name) else [first]
        found = next((folder / name for folder in order if (folder / name).exists()), None)
        if found is not None:
            (made / name).symlink_to(found)


def _resize(model: dict[str, Any], weights: Path) -> None:
    """Give the config the number of tokens that the adapter's own embedding has."""
    rows = replaced_rows(adapter_tensors(weights))
    part = decoder_part(model)
    if rows is not None and part.get("vocab_size") not in (None, rows):
        changed = {**part, "vocab_size": rows}
        if part is model:
            model.update(changed)
        else:
            key = next(key for key, value in model.items() if value is part)
            model[key] = changed


def _write(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
