"""The tokenizer's way into the artifact: one ``tokenizer.json`` and the conventions around it.

transformers' own view of the tokenizer is what is written: its classes change normalizers and
post-processors of the file in the folder, and prompts must be encoded as its users know them.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optc.artifact.manifest import TokenizerEntry
from optc.errors import InputError, UnsupportedError
from optc.importer.json_file import read_object
from optc.importer.remote_code import check_remote_code, never_ask
from optc.importer.text_model.stated import stated
from optc.importer.tokenizer_files import PROCESSOR_TEMPLATE
from optc.runtime.text.named_templates import DEFAULT, Merged, merged_template
from optc.runtime.text.rust_errors import RustError, rust_errors

FOLDER = "tokenizer"
#: Stands for none in some configs.
_NO_TOKEN = -1
#: More than any vocabulary has; ids are 32 bits in all engines.
_MOST_TOKENS = 1 << 31
#: A text of all that is common: words that no vocabulary has need its unknown token.
_TRIED = f"a {string.printable}"
#: Files that are a vocabulary.
VOCABULARIES = frozenset({"tokenizer.json", "tokenizer.model", "vocab.json"})


def write_tokenizer(
    source: Path,
    files: Sequence[Path],
    config: dict[str, Any],
    artifact: Path,
    *,
    allow_remote_code: bool,
) -> TokenizerEntry | None:
    """Write the tokenizer into the artifact's ``tokenizer`` folder.

    Args:
        source: The model's folder.
        files: Its tokenizer and generation files.
        config: Its config.json.
        artifact: The artifact's folder.
        allow_remote_code: Whether Python code of the model's folder may run.

    Returns:
        The manifest's entry, or None where the model has no tokenizer.

    Raises:
        InputError: The tokenizer's files are damaged.
        UnsupportedError: It has no form that the tokenizers library can run, or it is code of the
            folder's that may not run.
    """
    if not any(file.name in VOCABULARIES for file in files):
        return None
    generation = _generation_settings(files)
    tokenizer = _load(source, files, allow_remote_code)
    folder = artifact / FOLDER
    folder.mkdir()
    text = tokenizer.backend_tokenizer.to_str(pretty=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    written = [f"{FOLDER}/tokenizer.json"]
    template = chat_template(tokenizer.chat_template, source).source
    if template:
        written.append(f"{FOLDER}/chat_template.jinja")
        (artifact / written[-1]).write_text(template, encoding="utf-8")
    settings = {**stated(config), **generation}
    bos = next(iter(_ids(settings, "bos_token_id", tokenizer.bos_token_id, source)), None)
    return TokenizerEntry(
        files=tuple(written),
        bos_token_id=bos,
        eos_token_ids=_ids(settings, "eos_token_id", tokenizer.eos_token_id, source),
        add_bos=bos is not None and _first_id(tokenizer, source) == bos,
        bos_token=tokenizer.bos_token or "",
        eos_token=tokenizer.eos_token or "",
        chat_template=written[-1] if template else "",
        special_tokens=_other_tokens(tokenizer, template),
    )


def _load(source: Path, files: Sequence[Path], allow_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    check_remote_code(source, allowed=allow_remote_code)
    for file in files:
        if file.suffix == ".json":
            read_object(file, finite=False)  # transformers' own messages say less, or nothing
    never_ask()
    try:
        with rust_errors():  # panics are no Exception
            tokenizer = AutoTokenizer.from_pretrained(
                source, local_files_only=True, trust_remote_code=allow_remote_code
            )
    # The tokenizers library raises plain Exception at a tokenizer.json that it does not
    # understand, and transformers' classes whatever a setting of a wrong type leads to.
    except Exception as error:
        raise _unreadable(error, source) from error
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise UnsupportedError(
            f"{type(tokenizer).__name__} has no fast tokenizer",
            where=str(source),
            hint="convert it to a tokenizer.json",
        )
    return tokenizer


def _first_id(tokenizer: Any, source: Path) -> int | None:
    """The first token of a text, with which it is also tried whether texts can be encoded."""
    try:
        with rust_errors():
            ids: list[int] = tokenizer.backend_tokenizer.encode(_TRIED).ids
    except RustError as error:
        raise InputError(
            f"the tokenizer cannot encode plain text: {_one_line(error)}",
            where=str(source),
            hint="its vocabulary and its tokenizer_class may not belong together",
        ) from error
    return next(iter(ids), None)


def _unreadable(error: Exception, source: Path) -> InputError:
    return InputError(
        f"the tokenizer cannot be read: {type(error).__name__}: {_one_line(error)}",
        where=str(source),
        hint="its files are damaged, or not of this version of transformers",
    )


def _generation_settings(files: Sequence[Path]) -> dict[str, Any]:
    for file in files:
        if file.name == "generation_config.json":
            return {key: value for key, value in read_object(file).items() if value is not None}
    return {}


def chat_template(given: object, source: Path) -> Merged:
    """The template of the model in ``source``, its tokenizer's or, without one, its processor's.

    Args:
        given: ``chat_template`` of the tokenizer.
        source: The model's folder.

    Raises:
        InputError: It is no text.
    """
    where = source / "tokenizer_config.json"
    if given is None and (source / PROCESSOR_TEMPLATE).is_file():
        where = source / PROCESSOR_TEMPLATE
        given = read_object(where).get("chat_template")
    default = given.get(DEFAULT) if isinstance(given, dict) else given
    if default is not None and not isinstance(default, str):
        raise InputError(
            f"chat_template is not a text but {type(default).__name__}",
            where=str(where),
            hint="the tokenizer's files are damaged",
        )
    return merged_template(given)


def _other_tokens(tokenizer: Any, template: str) -> dict[str, str]:
    """Texts of special tokens that the template may name, beside BOS and EOS."""
    named = dict(tokenizer.special_tokens_map)
    return {
        name: str(text)
        for name, text in sorted(named.items())
        if name not in ("bos_token", "eos_token") and isinstance(text, str) and name in template
    }


def _ids(settings: dict[str, Any], key: str, fallback: int | None, source: Path) -> tuple[int, ...]:
    """The token or tokens under ``key``, or the tokenizer's own.

    Raises:
        InputError: Something under ``key`` is no token id.
    """
    configured = settings.get(key)
    tokens: list[Any] = configured if isinstance(configured, list) else [configured]
    if configured is None:
        tokens = [] if fallback is None else [fallback]
    for token in tokens:
        if type(token) is not int or not _NO_TOKEN <= token < _MOST_TOKENS:
            raise InputError(
                f"{key} is {token!r}, which is no token id",
                where=str(source),
                hint="mend it in generation_config.json or config.json",
            )
    return tuple(token for token in tokens if token != _NO_TOKEN)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
