"""The recipes that ``--recipe auto`` tries for a model of a task, and the gates to hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optc.artifact.tasks.classification import CLASSIFICATION_NAME
from optc.artifact.tasks.embedding import EMBEDDING_NAME
from optc.artifact.tasks.image_generation import IMAGE_GENERATION_NAME
from optc.artifact.tasks.reranking import RERANKING_NAME
from optc.artifact.tasks.task import SPEED, Task
from optc.artifact.tasks.tensors import TENSORS_NAME
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT_NAME
from optc.artifact.tasks.token_classification import TOKEN_CLASSIFICATION_NAME
from optc.artifact.tasks.transcription import TRANSCRIPTION_NAME
from optc.compiling.ladder.losses import losses_of
from optc.compiling.ladder.members import Member, find_members
from optc.compiling.ladder.options import check_asked
from optc.compiling.recipes.recipe import NOT_JUDGED, load_recipe
from optc.errors import InputError
from optc.system.options import CompileOptions
from optc.system.suggest import near

#: What a ladder of measurements can be ordered by.
OBJECTIVES = ("speed", "size")
#: The gates where the user names none, by task: those of the shipped int8 recipes.
DEFAULT_GATES: Mapping[str, Sequence[str]] = {
    TENSORS_NAME: ("sqnr_db=25",),
    CLASSIFICATION_NAME: ("class_agreement=0.99",),
    EMBEDDING_NAME: ("cosine_mean=0.999",),
    RERANKING_NAME: ("rank_agreement=0.95",),
    TOKEN_CLASSIFICATION_NAME: ("label_agreement=0.98",),
    TRANSCRIPTION_NAME: ("token_agreement=0.95", "word_error_rate_added=0.005"),
    TEXT_TO_TEXT_NAME: ("token_agreement=0.95",),
    IMAGE_GENERATION_NAME: ("psnr_db=30", "ssim=0.95"),
}


@dataclass(frozen=True)
class MeasuredLadder:
    """A ladder that may be climbed.

    Attributes:
        task: What the model is for.
        objective: What orders the recipes that hold.
        bounds: What is judged, by gate.
        default_bounds: Whether the user named none.
        members: The recipes to try.
        speed: The measure of speed; empty if the task has none.
    """

    task: Task
    objective: str
    bounds: Mapping[str, float]
    default_bounds: bool
    members: Sequence[Member]
    speed: str

    def promised(self, member: Member) -> Mapping[str, float]:
        """The losses that a recipe's own gates allow."""
        return losses_of(member.recipe.gates)


def resolve_measured(asked: CompileOptions, kind: str, task: Task) -> MeasuredLadder:
    """Look up what is asked of ``--recipe auto``.

    Args:
        asked: By the user.
        kind: The task that recipes for such models name.
        task: Of the model.

    Raises:
        InputError: An objective, a gate or a recipe that is none for this task, or an option that
            is for a named recipe.
    """
    objective = check_asked(asked, OBJECTIVES)
    texts = tuple(asked.gate) or tuple(DEFAULT_GATES.get(task.name, ()))
    speed = next(iter(task.of(SPEED)), "")
    members = find_members(asked, (*_reported(speed, texts), *texts), kind)
    bounds = _bounds(texts, members, task)
    return MeasuredLadder(task, objective, bounds, not asked.gate, members, speed)


def check_gates(texts: Sequence[str], task: Task) -> None:
    """Check that every gate that is given a bound can be measured of such a model.

    Raises:
        InputError: One is a measure of another task.
    """
    for text in texts:
        name, equals, bound = text.partition("=")
        if equals and bound.lower() != NOT_JUDGED and name not in task.gates:
            raise InputError(
                f"{name} is no measure of the task {task.name!r}, which the model is for",
                where="--gate",
                hint=near(name, list(task.gates)),
            )


def _reported(speed: str, texts: Sequence[str]) -> Sequence[str]:
    """The speed is measured whether or not a recipe asks for it."""
    named = {text.partition("=")[0] for text in texts}
    return [] if not speed or speed in named else [f"{speed}=none"]


def _bounds(texts: Sequence[str], members: Sequence[Member], task: Task) -> dict[str, float]:
    check_gates(texts, task)
    gates = load_recipe(members[0].source, gates=texts).gates
    named = {text.partition("=")[0] for text in texts}
    found = {name: bound for name in gates if name in named and (bound := gates[name]) is not None}
    if found:
        return found
    raise InputError(
        "no gate has a bound, and recipes are chosen by their gates",
        where="--gate",
        hint=f"give one, such as --gate {next(iter(DEFAULT_GATES.get(task.name, ['NAME=BOUND'])))}",
    )
