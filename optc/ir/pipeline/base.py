"""`Pass`: the one base class of every graph rewrite, and what one is told and says."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self, get_type_hints

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.forms.form import Form
from optc.ir.pipeline.option_values import kind_text, read_value, shortened, value_text
from optc.ir.pipeline.phase import Effect, Phase

#: Metadata of a field that says where something lies on this machine: such an option is taken, and
#: left out of everything that is written, for an artifact does not depend on paths.
LOCAL: Final = {"local": True}
#: Types of the fields of passes: to evaluate them takes longer than to read the options.
_KINDS: Final[dict[type, dict[str, Any]]] = {}


@dataclass
class PassReport:
    """The results of one run of a pass.

    Attributes:
        count: How many places were rewritten.
        details: Rewritten places by kind, e.g. ``{"int8 per channel": 24}``.
        skipped: Reasons why candidates were left alone: the nearest misses, node first.
        facts: Figures that later stages or the report need (JSON values).
        settled: Options of later passes that follow from what was found, by ``pass.option``.
        warnings: What the user should know, one sentence each.
        missed: Weights in places that did not get what was asked for.
    """

    count: int = 0
    details: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    settled: dict[str, object] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    missed: int = 0

    def add(self, kind: str, count: int = 1) -> None:
        """Count ``count`` rewritten places of ``kind``."""
        self.count += count
        self.details[kind] = self.details.get(kind, 0) + count

    def skip(self, node: ir.Node | None, reason: str) -> None:
        """Record why a candidate was left alone."""
        name = f"{node.name or node.op_type}: " if node is not None else ""
        self.skipped.append(name + reason)

    def miss(self, node: ir.Node, reason: str, weights: int) -> None:
        """Record why a candidate with so many weights did not get what was asked for."""
        self.skip(node, reason)
        self.missed += weights

    def judge_missed(self, asked: int, what: str) -> None:
        """Warn where more than a twentieth of the weights did not get what was asked for.

        Args:
            asked: Weights for which it was asked.
            what: Was asked for: ``4 bits``.
        """
        share = self.missed / asked if asked else 0.0
        if share > _MOST_MISSED:
            first = next((text for text in self.skipped if "K=" in text), self.skipped[0])
            self.warnings.append(f"{share:.0%} of the weights are not {what}; {first}")


#: A smaller share of the weights goes without a warning.
_MOST_MISSED = 0.05
#: Phases whose passes read no text and choose nothing by the target's own weights.
_ALSO_OF_LAYERS = (Phase.CANONICAL, Phase.FUSION, Phase.CACHE, Phase.ROUNDING)


@dataclass(frozen=True)
class PassContext:
    """The compile around a pass, beside the model.

    Attributes:
        earlier: The passes that run before it, in order.
        later: The passes that run behind it, in order.
        dry: Rewrite the model as far as its graph and the sizes of its weights go, without a text
            and without running it: for ``optc plan``, and for prices of recipes.
        bounds: What engines of the model will be judged by, by gate: a pass that can lose less at a
            price takes what it needs.
    """

    earlier: tuple[Pass, ...] = ()
    later: tuple[Pass, ...] = ()
    dry: bool = False
    bounds: Mapping[str, float] = field(default_factory=dict)


#: A pass that nothing comes before or behind.
ALONE: Final = PassContext()


@dataclass(frozen=True)
class PassCosts:
    """The predicted costs of a pass on a model in the dense form; 0 is little.

    Files that are mapped do not count as memory.

    Attributes:
        working: Bytes of memory at its peak, while it runs.
        left: Bytes that keep what it leaves, while later passes run and engines are built.
        reading: Bytes that it takes to read the weights that it leaves.
        text_tokens: Tokens of a text that it runs the model over.
    """

    working: int = 0
    left: int = 0
    reading: int = 0
    text_tokens: int = 0


#: Of a pass that takes little.
NO_COSTS: Final = PassCosts()


@dataclass(frozen=True)
class Pass:
    """A graph rewrite in place. Subclasses are frozen dataclasses whose fields are the options.

    ``name`` is the kebab-case name in recipes. ``required`` says that firing zero times fails
    the compile with the nearest miss: without the pass, the result would be another one than the
    recipe promises. ``expected`` says that it is a warning: the result is the same, only slower. A
    recipe's ``required: true`` and ``optional: true`` go before both. ``phase`` and ``effects`` say
    what the pass is for and what it does to a model, so that nobody needs its name for that.
    ``takes`` are the forms of a model that the pass works on, none for any; ``gives`` is the form
    that it makes, None if the form stays.
    """

    name: ClassVar[str]
    required: ClassVar[bool] = False
    expected: ClassVar[bool] = False
    phase: ClassVar[Phase] = Phase.FUSION
    effects: ClassVar[Effect] = Effect.NONE
    #: The option of a compile that adds it to a recipe, such as ``--adapters``; empty is none.
    added_by: ClassVar[str] = ""
    #: The operator that it adds, which some engines lack; empty is none.
    adds: ClassVar[str] = ""
    #: The reason, for users, why weights behind it are no checkpoint of the model's class; asked
    #: where it does not keep parameters (`Effect.KEEPS_PARAMETERS`).
    unlike_class: ClassVar[str] = "it changes what weights stand for"
    #: The structures that it takes out and that a config counts: ``layers``, ``heads`` or
    #: ``neurons``; empty are none.
    removes: ClassVar[str] = ""
    #: When it pays: figures of a measurement, and where they stand; empty where recipes are the
    #: measurement.
    pays: ClassVar[str] = ""
    #: False of one that knows no matmuls by experts, or by heads.
    knows_experts: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = ()
    gives: ClassVar[type[Form] | None] = None
    #: Names of passes that must have run before / must not have run before.
    after: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def has(cls, effects: Effect) -> bool:
        """True if it has one of ``effects``."""
        return bool(cls.effects & effects)

    def requires(self, model: ir.Model) -> None:
        """Check preconditions; raise `optc.errors.InputError` naming what is missing."""

    def ensures(self, model: ir.Model) -> None:
        """Check postconditions; raise `RuntimeError` (an internal error) if they do not hold."""

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place and report; what pipelines call. Most passes need not ask the
        context; one that reads a text or runs the model must not where it is ``dry``."""
        raise NotImplementedError  # pragma: no cover - abstract

    def leaves_class(self) -> str:
        """The reason why weights behind it are no checkpoint of the model's class, or of one with
        other sizes (`removes`); empty if they are one."""
        kept = self.removes or self.has(Effect.KEEPS_PARAMETERS)
        return "" if kept else self.unlike_class

    def for_draft_layer(self, weights: Sequence[str]) -> Pass | None:
        """The pass for a layer that drafts by a target's hidden states, in the recipe of the
        target; None to leave it out. Those that prepare the target's own weights are left out.

        Args:
            weights: Names of the layer's own.
        """
        return self if self.phase in _ALSO_OF_LAYERS else None

    def for_part(self, part: ir.Model) -> Pass:
        """The pass for a model of some layers of the one that its options name tensors of."""
        return self

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """The costs of running it on ``model``, in the dense form: a prediction before the first
        pass runs."""
        return NO_COSTS

    def samples(self) -> Sequence[ir.Node]:
        """Nodes such as it writes into any model, by which backends tell before there is a model
        whether they take its options; none where that depends on the model."""
        return ()

    def check_option(self, option: str, allowed: Collection[object], hint: str = "") -> None:
        """Check that an option has one of its values; for ``__post_init__``.

        Raises:
            InputError: It has another; the hint, if there is none of its own, names them all.
        """
        value = getattr(self, option)
        if value not in allowed:
            raise InputError(
                f"{option}={value} is not possible",
                where=f"pass {self.name}",
                hint=hint or f"one of {', '.join(map(str, allowed))}",
            )

    def stated_options(self) -> dict[str, Any]:
        """The options that are neither at their defaults nor local."""
        values = {f.name: (getattr(self, f.name), f.default) for f in dataclasses.fields(self)}
        local = self.local_options()
        return {k: v for k, (v, default) in values.items() if v != default and k not in local}

    def spec(self) -> str:
        """The pass as text, ``name{option=value,…}``, with its `stated_options`."""
        options = [f"{key}={value_text(value)}" for key, value in self.stated_options().items()]
        return f"{self.name}{{{','.join(options)}}}" if options else self.name

    @classmethod
    def local_options(cls) -> frozenset[str]:
        """Names of the options that are `LOCAL`."""
        return frozenset(f.name for f in dataclasses.fields(cls) if "local" in f.metadata)

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Pass:
        """Build the pass from options, typed or as texts (`optc.ir.pipeline.option_values`).

        Raises:
            InputError: Unknown option, or a value that is not of the option's type.
        """
        return cls(**cls._read(options))

    def with_options(self, options: Mapping[str, object]) -> Self:
        """The pass with other options.

        Raises:
            InputError: As `from_options`.
        """
        return dataclasses.replace(self, **self._read(options))

    @classmethod
    def _read(cls, options: Mapping[str, object]) -> dict[str, Any]:
        """Values of the fields' types."""
        known = [f.name for f in dataclasses.fields(cls)]
        kinds = _KINDS.get(cls) or _KINDS.setdefault(cls, get_type_hints(cls))
        values: dict[str, Any] = {}
        for key, value in options.items():
            if key not in known:
                raise InputError(
                    f"unknown option {shortened(key)}",
                    where=f"pass {cls.name}",
                    hint=f"options: {', '.join(known) or 'none'}",
                )
            try:
                values[key] = read_value(kinds[key], value)
            except (KeyError, ValueError) as error:
                raise InputError(
                    f"option {key}={shortened(value)} is not a {kind_text(kinds[key])}",
                    where=f"pass {cls.name}",
                ) from error
        return values
