"""The parts of ``report.json`` that commands show, as structs; others are left as they are."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from optc.system.foreign.typed_json import Count, Positive, Size

#: Far more than there are bins (`optc.proof.gates.kl_distribution`).
_MOST_BINS = 1000


class PassData(Struct, frozen=True):
    """A pass that ran (`optc.ir.pipeline.pipeline`)."""

    name: str
    count: Count
    seconds: float
    details: dict[str, Any] | None = None
    facts: dict[str, Any] | None = None


class GateData(Struct, frozen=True):
    """A gate (`optc.proof.gates.measure.GateResult`)."""

    name: str
    value: float | None
    bound: float | None
    passed: bool | None
    measured_on: str
    reason: str | None = None
    engine: str | None = None


class TokenData(Struct, frozen=True):
    """A token, and how likely it is to both models."""

    token: Count
    text: str | None = None
    reference_probability: float | None = None
    engine_probability: float | None = None


class ContextData(Struct, frozen=True):
    """A place of large divergence (`optc.proof.gates.worst_contexts`)."""

    next: TokenData
    reference: TokenData
    engine: TokenData
    kl: float | None = None
    context: str | None = None
    window: Any = None
    position: Any = None


class DistributionData(Struct, frozen=True):
    """The distribution of the KL of single tokens (`optc.proof.gates.kl_distribution`)."""

    first: Annotated[float, Meta(gt=0)]
    bins_per_decade: Positive
    counts: Annotated[tuple[Count, ...], Meta(max_length=_MOST_BINS)]
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p99_9: float | None = None


class OptionData(Struct, frozen=True):
    """An option of a decision, and how likely it is to both models."""

    option: str | None = None
    reference_probability: float | None = None
    engine_probability: float | None = None


class DecisionData(Struct, frozen=True):
    """A decision of a conversation (`optc.proof.gates.answers`)."""

    reference: OptionData
    engine: OptionData
    about: str | None = None
    kind: str | None = None
    where: str | None = None
    context: str | None = None
    margin: float | None = None
    engine_margin: float | None = None
    flipped: bool | None = None


class DecisionCounts(Struct, frozen=True):
    """Numbers of decisions, of firm ones, and of these that flipped."""

    count: Count
    firm: Count
    flips: Count


class DecisionsData(DecisionCounts, frozen=True):
    """All decisions of conversations."""

    by_kind: dict[str, DecisionCounts]
    worst: tuple[DecisionData, ...]
    margin_factor: float | None = None
    margin_factor_p50: float | None = None


class AnswersData(Struct, frozen=True):
    """Figures of answers."""

    decisions: DecisionsData | None = None


class AnswersOf(Struct, frozen=True):
    """Of the figures of an engine, those of answers."""

    answers: AnswersData | None = None


class ContextsOf(Struct, frozen=True):
    """Of the figures of an engine, the places of largest divergence."""

    worst_contexts: tuple[ContextData, ...] = ()


class DivergenceOf(Struct, frozen=True):
    """Of the figures of an engine, those of the divergence."""

    tokens: Count = 0
    kl_mean: float | None = None
    kl_p99: float | None = None
    kl_max: float | None = None
    perplexity: float | None = None
    reference_perplexity: float | None = None
    top1_agreement: float | None = None
    top5_agreement: float | None = None
    kl_distribution: DistributionData | None = None


class EvaluationData(ContextsOf, frozen=True):
    """Figures of an engine, and of the model that it was lowered to: what commands show."""

    kl_distribution: DistributionData | None = None
    lowered: EvaluationData | None = field(default=None, name="lowered-onnx")


class TensorKind(Struct, frozen=True):
    """Weights of a kind, and the bytes among theirs of scales, zero points and biases."""

    kind: str
    tensors: Size
    bytes: Size
    scale_bytes: Size


class RungData(Struct, frozen=True):
    """A recipe of a ladder; without ``predicted`` and ``measured`` it was never a rung."""

    recipe: str
    outcome: str
    why: str
    predicted: dict[str, float | None] | None = None
    measured: dict[str, float | None] | None = None
    values: dict[str, float | None] = {}
    windows: Size = 0
    seconds: float | None = None


class LadderData(Struct, frozen=True):
    """The recipes that were tried (`optc.compiling.ladder.record`)."""

    objective: str
    gates: dict[str, float | None]
    rungs: tuple[RungData, ...]


class BisectData(Struct, frozen=True):
    """SQNR behind each layer, in dB, after all passes."""

    sqnr_by_layer: tuple[float | None, ...]


class StorageData(Struct, frozen=True):
    """Bytes of the artifact on disk."""

    bytes: Size


class EngineSizes(Struct, frozen=True):
    """Bytes of an engine and of its weights; without the latter it is the engine's state here."""

    name: str | None = None
    bytes: Size = 0
    weight_bytes: Size | None = None


class SizesData(Struct, frozen=True):
    """Figures beside gates by which artifacts are compared."""

    storage: StorageData | None = None
    engines: tuple[EngineSizes, ...] = ()
    seconds: float | None = None
    peak_anon_bytes: float | None = None


class ReportData(Struct, frozen=True):
    """The parts that several commands show, which a reader checks. Pages check their own parts."""

    passes: tuple[PassData, ...] = ()
    gates: tuple[GateData, ...] = ()
    evaluation: dict[str, EvaluationData] = {}
    tensors: tuple[TensorKind, ...] = ()
    verified: tuple[dict[str, Any], ...] = ()
