"""Tells whether this optc can show an artifact's engines as their task says."""

from __future__ import annotations

from optc import registry
from optc.artifact.tasks.task import Task

#: Faces of the runtime (`Task.face`).
FACES = (
    "text-generation",
    "tensors",
    "embedding",
    "transcription",
    "classification",
    "image-generation",
    "reranking",
    "token-classification",
    "text-to-text",
)


def reason_against(task: Task) -> str:
    """Empty if engines of a task can be used here, else the reason: what is not known, by name."""
    known = registry.tasks()
    if task.name not in known:
        return f"this optc knows no task {task.name[:80]!r}; it knows {', '.join(known)}"
    if task.face not in FACES:
        return (
            f"this optc cannot show its task {task.name[:80]!r} as {task.face[:80]!r}; it shows "
            f"{', '.join(FACES)}"
        )
    return ""
