"""`Pipeline`: passes in order, validated before they run, timed and reported one by one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from optc.errors import InputError, UnsupportedError
from optc.ir.forms.find import form_type
from optc.ir.forms.form import Form
from optc.ir.functions import prune_functions
from optc.ir.pipeline.base import Pass, PassContext, PassCosts, PassReport
from optc.ir.pipeline.instruments import Instrument
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.pipeline.record import PassRecord

#: What a recipe says of any pass: that firing zero times is no error and no warning, or an error.
OPTIONAL = "optional"
REQUIRED = "required"
MARKS = (OPTIONAL, REQUIRED)


@dataclass(frozen=True)
class Pipeline:
    """Ordered passes.

    Attributes:
        passes: In running order.
        optional: Names of passes that may fire zero times, whatever they say themselves.
        required: Names of passes that must not.
    """

    passes: tuple[Pass, ...]
    optional: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()

    def has(self, effects: Effect) -> bool:
        """True if a pass has one of ``effects``."""
        return any(one.has(effects) for one in self.passes)

    def behind(self, phase: Phase) -> int:
        """The place before the first pass of a phase that comes later than ``phase``."""
        found = (i for i, one in enumerate(self.passes) if one.phase > phase)
        return next(found, len(self.passes))

    def spec(self) -> str:
        """The pipeline as text, for people: ``canonicalize,quantize-weights{bits=4}``."""
        return ",".join(self._spec_of(one) for one in self.passes)

    def _spec_of(self, one: Pass) -> str:
        text = one.spec()
        if one.name not in self.optional | self.required:
            return text
        mark = f"{OPTIONAL if one.name in self.optional else REQUIRED}=true"
        return f"{text[:-1]},{mark}}}" if text.endswith("}") else f"{text}{{{mark}}}"

    def validate(self, start: type[Form] | None = None) -> None:
        """Check the order that the passes declare, by the forms they take and by names, and that no
        pass is optional and required.

        Args:
            start: The form that the first pass is given; None if it is not known.

        Raises:
            InputError: All violations in one message.
        """
        names = [one.name for one in self.passes]
        both = sorted(self.optional & self.required)
        problems = [f"{name} is both optional and required" for name in both]
        problems += self._wrong_forms(start)
        for index, one in enumerate(self.passes):
            missing = [name for name in one.after if name not in names[:index]]
            early = [name for name in one.before if name in names[:index]]
            problems += [f"{one.name} must come after {name}" for name in missing]
            problems += [f"{one.name} must come before {name}" for name in early]
        if problems:
            raise InputError(
                "; ".join(problems), where="pipeline", hint=f"the order was: {', '.join(names)}"
            )

    def _wrong_forms(self, form: type[Form] | None) -> list[str]:
        """Why passes cannot take the form that the passes before them leave."""
        problems = []
        for one in self.passes:
            if form is not None and one.takes and form not in one.takes:
                wanted = " or ".join(taken.title for taken in one.takes)
                problems.append(f"{one.name} takes {wanted}, and is given {form.title}")
            if one.gives is not None or (form is None and len(one.takes) == 1):
                form = one.gives or one.takes[0]
        return problems

    def run(
        self,
        model: ir.Model,
        on_pass: Sequence[Instrument] = (),
        *,
        dry: bool = False,
        first: int | None = None,
        bounds: Mapping[str, float] | None = None,
    ) -> list[PassRecord]:
        """Run every pass on ``model`` in place.

        Args:
            model: Changed in place.
            on_pass: Instruments, called after each pass.
            dry: Rewrite the graph only, and read no text (`PassContext.dry`).
            first: Run so many passes only; they know the others as later ones all the same.
            bounds: What engines will be judged by (`PassContext.bounds`).

        Raises:
            InputError: The order is not possible from the form of ``model`` on, or a pass's
                precondition does not hold.
            UnsupportedError: A required pass found nothing to rewrite; the nearest miss is told.
                What is only expected to find something gets a warning in its record.
        """
        self.validate(form_type(model))
        records: list[PassRecord] = []
        pipeline = self
        for index in range(len(self.passes) if first is None else first):
            record = pipeline._run_one(index, model, dry, bounds or {})
            pipeline = pipeline.settled([record])
            for instrument in on_pass:
                instrument(record, model)
            records.append(record)
        return records

    def settled(self, records: Iterable[PassRecord]) -> Pipeline:
        """The pipeline with the options that passes settled for later ones
        (`PassReport.settled`)."""
        by_pass: dict[str, dict[str, object]] = {}
        for key, value in (pair for one in records for pair in one.report.settled.items()):
            name, _, option = key.partition(".")
            by_pass.setdefault(name, {})[option] = value
        if not by_pass:
            return self
        passes = (one.with_options(by_pass.get(one.name, {})) for one in self.passes)
        return replace(self, passes=tuple(passes))

    def context_of(self, index: int) -> PassContext:
        """The context of the pass at a place: the passes before and behind it."""
        return PassContext(self.passes[:index], self.passes[index + 1 :])

    def costs(self, dense: ir.Model) -> list[PassCosts]:
        """Costs of each pass on a model in the dense form."""
        passes = enumerate(self.passes)
        return [one.costs(dense, self.context_of(index)) for index, one in passes]

    def _run_one(
        self, index: int, model: ir.Model, dry: bool, bounds: Mapping[str, float]
    ) -> PassRecord:
        start, one = time.perf_counter(), self.passes[index]
        if one.takes:
            form_type(model).of(model)
        one.requires(model)
        report = one.run(model, replace(self.context_of(index), dry=dry, bounds=bounds))
        idle = not report.count and one.name not in self.optional
        if idle and (one.required or one.name in self.required):
            raise _fired_never(one, report)
        one.ensures(model)
        if one.gives is not None:
            one.gives.of(model)
        prune_functions(model)
        warning = f"pass {one.name}: {_miss(report)}" if idle and one.expected else ""
        seconds = time.perf_counter() - start
        told = (one.effects, one.removes, one.leaves_class())
        return PassRecord(index, one.name, one.spec(), seconds, report, warning, *told)


def _miss(report: PassReport) -> str:
    nearest = report.skipped[0] if report.skipped else "no candidate was found"
    return f"the pass found nothing to rewrite; nearest miss: {nearest}"


def _fired_never(one: Pass, report: PassReport) -> UnsupportedError:
    return UnsupportedError(
        _miss(report),
        where=f"pass {one.name}",
        hint=f"leave the pass out, or set {OPTIONAL}: true on it",
    )
