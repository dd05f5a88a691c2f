"""All that differs between two subjects, as the JSON object of ``optc diff``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.proof.bench.interleaved import CALL_METRICS, METRICS, Compared
from optc.proof.conditions.differences.facts import pass_changes, recipe_changes, version_changes
from optc.proof.conditions.differences.figures import figures_of, gate_changes, size_changes
from optc.proof.conditions.differences.subject import Subject
from optc.proof.conditions.differences.weights import weight_changes
from optc.proof.conditions.verdicts import Figures

#: How many tensors of an engine are not as they were.
WEIGHTS_CHANGED = "weights_changed"
#: Before names of measures of outputs for the same inputs.
OUTPUTS = "outputs."


@dataclass(frozen=True)
class Difference:
    """Two subjects side by side.

    Attributes:
        values: The JSON object.
        a: Figures of the first, the baseline.
        b: Figures of the second.
        notes: What could not be compared.
    """

    values: dict[str, Any]
    a: Figures
    b: Figures
    notes: tuple[str, ...]


def difference(
    a: Subject,
    b: Subject,
    speed: Sequence[Compared] | None = None,
    outputs: Mapping[str, float | None] | None = None,
) -> Difference:
    """Everything that differs.

    Args:
        a: The baseline.
        b: What is compared with it.
        speed: Of both in turns; None was not measured.
        outputs: Measures of the second one's outputs beside the first one's for the same inputs;
            None were not compared.

    Raises:
        ArtifactError: A report's figures are damaged.
    """
    values: dict[str, Any] = {"a": _identity(a), "b": _identity(b), **_manifests(a, b)}
    values["gates"], values["sizes"] = gate_changes(a, b), size_changes(a, b)
    weights = None
    if a.artifact is not None and b.artifact is not None:
        weights = [one.to_json() for one in weight_changes(a.artifact, b.artifact)]
    values["weights"] = weights
    values["speed"] = None if speed is None else [asdict(one) for one in speed]
    values["outputs"] = None if outputs is None else dict(outputs)
    before, after = dict(figures_of(a)), dict(figures_of(b))
    after |= {f"{OUTPUTS}{name}": {"": value} for name, value in (outputs or {}).items()}
    if weights is not None:
        after[WEIGHTS_CHANGED] = {one["engine"]: one["changed"] for one in weights}
    _add_speed(before, after, speed or ())
    return Difference(values, before, after, (*a.notes, *b.notes, *_notes(values)))


def metrics_of(a: Subject, b: Subject, *, speed: bool, outputs: bool) -> list[str]:
    """All figures that conditions on `difference` may name.

    Args:
        a: The baseline.
        b: What is compared with it.
        speed, outputs: Whether these are measured.

    Raises:
        ArtifactError: A report's figures are damaged.
    """
    weights = [WEIGHTS_CHANGED] if a.artifact is not None and b.artifact is not None else []
    measured = speed_metrics(b) if speed else ()
    task = None if b.manifest is None else b.manifest.task
    compared = [f"{OUTPUTS}{name}" for name in task.gates] if outputs and task else []
    return list(dict.fromkeys([*figures_of(b), *figures_of(a), *weights, *measured, *compared]))


def speed_metrics(subject: Subject) -> Sequence[str]:
    """The figures of speed that are measured of such a model."""
    manifest = subject.manifest
    steps = manifest is None or manifest.task.face == TEXT_GENERATION.face
    return METRICS if steps else CALL_METRICS


def _manifests(a: Subject, b: Subject) -> dict[str, Any]:
    """The differences between manifests; all null where one subject has none."""
    if a.manifest is None or b.manifest is None:
        return dict.fromkeys(("same", "recipe", "passes", "versions"))
    return {
        "same": a.manifest.digest == b.manifest.digest,
        "recipe": recipe_changes(a.manifest, b.manifest),
        "passes": pass_changes(a.manifest, b.manifest),
        "versions": version_changes(a.manifest, b.manifest),
    }


def _identity(subject: Subject) -> dict[str, Any]:
    manifest = subject.manifest
    if manifest is None:
        return {"path": subject.name, "digest": None, "model": None, "source": None}
    return {
        "path": subject.name,
        "digest": manifest.digest,
        "model": manifest.name,
        "source": manifest.source.digest,
    }


def _add_speed(
    before: dict[str, dict[str, float | None]],
    after: dict[str, dict[str, float | None]],
    speed: Sequence[Compared],
) -> None:
    """Speeds by metric and concurrency. A factor is one of the rounds' median ratio: the medians'
    own ratio would depend on rounds that were not side by side."""
    for one in speed:
        case = str(one.concurrency)
        after.setdefault(one.metric, {})[case] = one.b
        scaled = one.b / one.ratio if one.b is not None and one.ratio else one.a
        before.setdefault(one.metric, {})[case] = scaled


def _notes(values: Mapping[str, Any]) -> list[str]:
    notes = [
        f"weights of the engine {one['engine']} are not compared: {one['reason']}"
        for one in values["weights"] or ()
        if one["reason"]
    ]
    a, b = values["a"]["source"], values["b"]["source"]
    if None not in (a, b) and a != b:
        notes.append("they are not of one source model: other config or weights")
    return notes
