"""The tokenizer's way into the artifact: one ``tokenizer.json`` and the conventions around it.

transformers' own view of the tokenizer is what is written: its classes change normalizers and
post-processors of the file in the folder, and prompts must be encoded as its users know them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optc.artifact import TokenizerEntry
from optc.errors import InputError, UnsupportedError

FOLDER = "tokenizer"
_VOCABULARIES = frozenset({"tokenizer.json", "tokenizer.model", "vocab.json"})


def write_tokenizer(
    source: Path, files: Sequence[Path], config: dict[str, Any], artifact: Path
) -> TokenizerEntry | None:
    """Write the tokenizer into the artifact's ``tokenizer`` folder.

    Args:
        source: The model's folder.
        files: Its tokenizer and generation files.
        config: Its config.json.
        artifact: The artifact's folder.

    Returns:
        The manifest's entry, or None where the model has no tokenizer.

    Raises:
        InputError: The tokenizer's files are damaged.
        UnsupportedError: It has no form that the tokenizers library can run.
    """
    if not any(file.name in _VOCABULARIES for file in files):
        return None
    tokenizer = _load(source)
    folder = artifact / FOLDER
    folder.mkdir()
    text = tokenizer.backend_tokenizer.to_str(pretty=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    written = [f"{FOLDER}/tokenizer.json"]
    template = _chat_template(tokenizer)
    if template:
        written.append(f"{FOLDER}/chat_template.jinja")
        (artifact / written[-1]).write_text(template, encoding="utf-8")
    settings = {**config, **_generation_settings(files)}
    bos = _first(settings.get("bos_token_id"), tokenizer.bos_token_id)
    return TokenizerEntry(
        files=tuple(written),
        bos_token_id=bos,
        eos_token_ids=_ids(settings.get("eos_token_id"), tokenizer.eos_token_id),
        add_bos=bos is not None and tokenizer("a").input_ids[:1] == [bos],
        bos_token=tokenizer.bos_token or "",
        eos_token=tokenizer.eos_token or "",
        chat_template=written[-1] if template else "",
    )


def _load(source: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise InputError(
            f"the tokenizer cannot be read: {_one_line(error)}", where=str(source)
        ) from error
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise UnsupportedError(
            f"{type(tokenizer).__name__} has no fast tokenizer",
            where=str(source),
            hint="convert it to a tokenizer.json",
        )
    return tokenizer


def _generation_settings(files: Sequence[Path]) -> dict[str, Any]:
    for file in files:
        if file.name == "generation_config.json":
            try:
                settings = json.loads(file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise InputError(f"is not JSON: {error}", where=str(file)) from error
            return {k: v for k, v in settings.items() if v is not None}
    return {}


def _chat_template(tokenizer: Any) -> str:
    """The template; of several named ones, the default."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    return template or ""


def _ids(configured: int | list[int] | None, fallback: int | None) -> tuple[int, ...]:
    if isinstance(configured, list):
        return tuple(configured)
    token = fallback if configured is None else configured
    return () if token is None else (token,)


def _first(configured: int | list[int] | None, fallback: int | None) -> int | None:
    return next(iter(_ids(configured, fallback)), None)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
