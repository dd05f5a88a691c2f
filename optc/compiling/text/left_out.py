"""Parts of a model's folder that a compile does not take, or cannot use: one warning each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.artifact.manifest import TokenizerEntry
from optc.compiling.stages.generation import generation_settings
from optc.errors import RequestError
from optc.proof.conversations.load import artifact_tokenizer, folder_templates
from optc.runtime.text.chat_template import FAILS
from optc.runtime.text.left_out import LEAVES_OUT
from optc.runtime.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from optc.importer.imported import ImportedModel

_USER = {"role": "user", "content": "x"}
_SAID = {"role": "assistant", "content": "x"}
_TOOL = {
    "type": "function",
    "function": {"name": "x", "description": "x", "parameters": {"type": "object"}},
}
#: Conversations that chat templates take, with further variables.
_TRIED: tuple[tuple[list[dict[str, Any]], dict[str, Any]], ...] = (
    ([_USER], {}),
    ([{"role": "system", "content": "be brief"}, _USER], {}),
    ([_USER, _SAID, _USER], {}),
    ([_USER], {"tools": [_TOOL]}),
)


def left_out(
    imported: ImportedModel, artifact: Path, entry: TokenizerEntry | None
) -> tuple[str, ...]:
    """Warnings about chat templates and settings of generation.

    Args:
        imported: The model.
        artifact: The artifact's, in which the tokenizer is.
        entry: Of the tokenizer; None where the model has none.
    """
    settings = generation_settings(imported).warnings
    return (*settings, *_about_templates(imported.folder, artifact, entry))


def _about_templates(folder: Path, artifact: Path, entry: TokenizerEntry | None) -> list[str]:
    if entry is None or not entry.chat_template:
        return []
    others = ", ".join(folder_templates(folder).left_out)
    notes = [f"chat templates that are asked for by name are left out: {others}"] if others else []
    failures = list(_failures(artifact_tokenizer(artifact, entry)))
    if failures:
        notes.append(
            f"{failures[0]}: {len(failures)} of {len(_TRIED)} conversations that were tried "
            "cannot be rendered"
        )
    return notes


def _failures(tokenizer: Tokenizer) -> Iterator[str]:
    """Errors of trials; a template may refuse conversations of a kind by intent, such as those
    with a system message."""
    for messages, variables in _TRIED:
        try:
            tokenizer.render_chat(messages, **variables)
        except RequestError as error:
            plain = messages == [_USER] and not variables
            if plain or error.message.startswith((FAILS, LEAVES_OUT)):
                yield error.message
