"""The source of an artifact's draft model: its own draft engine, or another artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import EngineEntry
from optc.artifact.same_tokenizer import tokenizer_difference
from optc.errors import InputError

#: How an artifact gets an engine that drafts, by role.
_HINTS = {
    "draft": "compile it with --draft MODEL, or give the artifact of a draft with draft=",
    "self": "compile it with --self-draft LAYERS",
    "eagle": "compile it with --eagle FOLDER",
}
#: What an artifact lacks that has none.
_WHAT = {
    "draft": "draft model",
    "self": "draft of its own layers",
    "eagle": "layer that drafts by its hidden states",
}


def find_draft(
    target: Artifact,
    beside: EngineEntry,
    role: str,
    other: str | Path | None,
    verify: Literal["full", "size"],
) -> tuple[Artifact, EngineEntry]:
    """The artifact that holds the draft, and which of its engines that is.

    Args:
        target: The artifact that is drafted for.
        beside: Its engine; of several drafts, the one of the same backend and target is taken.
        role: A kind of `optc.runtime.speculative.kinds.MODELS`.
        other: Artifact of the draft model; None is the target's own draft engine.
        verify: How its files are checked.

    Raises:
        ArtifactError: ``other`` is not an artifact, or damaged.
        InputError: There is no draft engine, or the tokenizers differ.
        UnavailableError: The draft does not run on this machine.
    """
    if other is not None:
        artifact = Artifact.open(other, verify)
        check_same_tokenizer(target.tokenizer_file(), artifact.tokenizer_file(), str(other))
        return artifact, artifact.choose(beside=beside).entry
    if not any(engine.role == role for engine in target.manifest.engines):
        raise InputError(f"has no {_WHAT[role]}", where=str(target.path), hint=_HINTS[role])
    return target, target.choose(role, beside=beside).entry


def check_same_tokenizer(target: Path | None, draft: Path | None, where: str) -> None:
    """Check that a draft gives texts the target's ids. Models without tokenizer are trusted.

    Args:
        target: ``tokenizer.json`` of the target; None where it has none.
        draft: That of the draft.
        where: Names the draft in the message.

    Raises:
        InputError: One has a tokenizer and the other has not, or they differ.
    """
    if target is None and draft is None:
        return
    if target is None or draft is None:
        missing = "the target" if target is None else "the draft"
        problem = f"{missing} has no tokenizer, the other model has one"
    else:
        part = tokenizer_difference(target, draft)
        problem = f"the draft's tokenizer differs from the target's in its {part!r}" if part else ""
    if problem:
        raise InputError(
            problem, where=where, hint="a draft must be trained with the target's tokenizer"
        )
