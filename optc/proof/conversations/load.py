"""The `Chat` of a model: out of an artifact, or out of a model's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optc.artifact.manifest import TokenizerEntry
from optc.errors import InputError
from optc.importer.tokenizer_files import MORE_TEMPLATES, PROCESSOR_TEMPLATE
from optc.proof.conversations.chat import Chat
from optc.runtime.text.named_templates import DEFAULT, Merged, merged_template
from optc.runtime.text.tokenizer import Tokenizer, read_tokenizer
from optc.system.safe_json import JSONError, parse_json

#: A model's template, beside its tokenizer.
TEMPLATE = "chat_template.jinja"
_CONFIG, _TOKENIZER = "tokenizer_config.json", "tokenizer.json"
_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def artifact_chat(folder: Path, entry: TokenizerEntry | None) -> Chat | None:
    """The chat of a finished or unfinished artifact; None where its model has no template.

    Args:
        folder: Of the artifact.
        entry: Of its tokenizer.

    Raises:
        InputError: The template cannot be read.
    """
    if entry is None or not entry.chat_template:
        return None
    template = _read(folder / entry.chat_template)
    return Chat(lambda: _tokenizer(folder, entry, template), entry.eos_token_ids)


def artifact_tokenizer(folder: Path, entry: TokenizerEntry) -> Tokenizer:
    """The tokenizer of a finished or unfinished artifact.

    Raises:
        InputError: The template cannot be read.
    """
    return _tokenizer(folder, entry, _read(folder / entry.chat_template))


def _tokenizer(folder: Path, entry: TokenizerEntry, template: str) -> Tokenizer:
    return Tokenizer(
        read_tokenizer(folder / entry.files[0]),
        bos_token_id=entry.bos_token_id if entry.add_bos else None,
        chat_template=template,
        special_tokens=entry.template_tokens,
    )


def folder_chat(folder: Path) -> Chat | None:
    """The chat of the model in a folder, to encode whole conversations; None where it has no
    template.

    Raises:
        InputError: A file cannot be read.
    """
    config = _config(folder / _CONFIG)
    template = folder_templates(folder).source
    if not template:
        return None
    special = {name: _content(config.get(name)) for name in _NAMES}

    def load() -> Tokenizer:
        return Tokenizer(
            read_tokenizer(folder / _TOKENIZER),
            chat_template=template,
            special_tokens={name: text for name, text in special.items() if text},
        )

    return Chat(load, ())


def folder_templates(folder: Path) -> Merged:
    """The template of the model in a folder: those in files of their own, else its tokenizer's,
    else its processor's.

    Raises:
        InputError: A file cannot be read.
    """
    default, more = folder / TEMPLATE, folder / MORE_TEMPLATES
    named = {DEFAULT: _read(default)} if default.is_file() else {}
    named |= {file.stem: _read(file) for file in sorted(more.glob("*.jinja"))}
    given = named or _config(folder / _CONFIG).get("chat_template")
    if given is None:
        given = _config(folder / PROCESSOR_TEMPLATE).get("chat_template")
    return merged_template(given)


def _content(token: object) -> str:
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else ""


def _config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = parse_json(_read(path), finite=False)
    except JSONError as error:
        raise InputError(f"cannot read the tokenizer: {error}", where=str(path)) from error
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the chat template: {error}", where=str(path)) from error
