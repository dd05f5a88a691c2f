"""The loss of each group of weights in each format: KL measured, or taken from its error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import onnx_ir as ir

from optc.passes.calibrating.estimates import estimate, nearest_alike, runs_within
from optc.passes.calibrating.recall import KeptParts, name_of
from optc.passes.numerics.affine import RoundRows
from optc.passes.numerics.gptq.weights import Factors
from optc.passes.numerics.scheme import Scheme
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.budget.groups import Group, rounded, sampled_rows
from optc.passes.quantize.layer_schemes import format_text
from optc.proof.reference.calibration import CalibrationStore, find_statistics
from optc.runtime.executable.executable import Int32
from optc.system.hardware.target import usable_threads
from optc.system.progress import tell

#: Told (done, total) units of about equal work.
Advance = Callable[[int, int], None]

#: Multiply-adds that measurements may take: some minutes on two cores.
MOST_MACS = 2e13
#: Formats of more bits lose so little alone that their error says enough.
_MEASURED_BITS = 4
#: Variants that are measured at once, after which their figures are kept.
_TOGETHER = 32
#: Rows of a weight whose error is computed; the same ones in every format.
ERROR_ROWS = 256


@dataclass(frozen=True)
class Rated:
    """A group in one format.

    Attributes:
        scheme: The format.
        kl: What the model loses with this group alone in it, nats a token.
        measured: Whether that was measured, or follows from the error.
    """

    scheme: Scheme
    kl: float
    measured: bool


@dataclass(frozen=True)
class Rater:
    """Rates groups of one model.

    Attributes:
        model: Dense form.
        tokens: Windows [W, S] that KL is measured on.
        store: Has the Hessians of all groups' inputs.
        factors: Of GPTQ; None is plain rounding.
        parts: Errors of a group and losses of some variants are kept there as they are known.
    """

    model: ir.Model
    tokens: Int32
    store: CalibrationStore
    factors: Factors | None
    parts: KeptParts = field(default_factory=KeptParts)

    def rate(
        self, groups: Sequence[Group], schemes: Sequence[Sequence[Scheme]]
    ) -> list[list[Rated]]:
        """Each group in each of its formats."""
        errors = []
        for index, (group, own) in enumerate(zip(groups, schemes, strict=True)):
            tell("errors of formats", index, len(groups))
            errors.append(self._errors(group, own))
        wanted = [_to_measure(own) for own in schemes]
        roles = [group.role for group in groups]
        costs = costs_of(groups, self.tokens.size)
        chosen, most = runs_within(roles, costs, max(map(len, wanted)), MOST_MACS)
        pairs = [(i, f) for i in chosen for f in _fewer(wanted[i], most)]
        found = self.measure([{i: schemes[i][f]} for i, f in pairs], groups)
        measured: dict[int, dict[int, float]] = {}
        for (i, f), kl in zip(pairs, found, strict=True):
            measured.setdefault(i, {})[f] = kl
        rated = []
        for i, own in enumerate(schemes):
            donor = i if i in measured else nearest_alike(i, roles, chosen)
            known = {errors[donor][f]: kl for f, kl in measured[donor].items()}
            kls = [*map(float, estimate(errors[i], known))]
            mine = measured.get(i, {})
            rated.append([Rated(s, mine.get(f, kls[f]), f in mine) for f, s in enumerate(own)])
        return rated

    def measure(self, changes: Sequence[dict[int, Scheme]], groups: Sequence[Group]) -> list[float]:
        """The KL of the model with some groups, by index, in formats; one for each change."""
        found: list[float] = []
        for start in range(0, len(changes), _TOGETHER):
            some = changes[start : start + _TOGETHER]

            def advance(done: int, total: int, before: int = start, count: int = len(some)) -> None:
                units = before * total + count * done
                tell("sensitivity of weights", units, len(changes) * total)

            texts = [[(groups[i].name, format_text(one)) for i, one in c.items()] for c in some]
            name = f"kl-{name_of(texts)}"
            found += self.parts.value(name, partial(self._measure, some, groups, advance))
        return found

    def _measure(
        self, changes: Sequence[dict[int, Scheme]], groups: Sequence[Group], advance: Advance
    ) -> list[float]:
        """As `measure`, of all changes at once."""
        from optc.proof.reference.variants.measure import measure_variants  # brings ONNX Runtime

        variants = [
            {
                linear.initializer: rounded(linear.weight, scheme, self._rounder(groups[index]))
                for index, scheme in change.items()
                for linear in groups[index].linears
            }
            for change in changes
        ]
        found = measure_variants(self.model, self.tokens, variants, usable_threads(), advance)
        return [float(kl) for kl in found]

    def _errors(self, group: Group, schemes: Sequence[Scheme]) -> list[float]:
        """Of each format."""
        name = f"errors-{name_of((group.name, [format_text(one) for one in schemes]))}"
        found: list[float] = self.parts.value(
            name, lambda: [self._error(group, scheme) for scheme in schemes]
        )
        return found

    def _rounder(self, group: Group) -> RoundRows | None:
        """One for all linears of the group, whose factor is then computed once."""
        first = group.linears[0]
        return self.factors.rounder(first, first.name) if self.factors is not None else None

    def _error(self, group: Group, scheme: Scheme) -> float:
        """tr(E H Eᵀ), summed over the group's weights; of many rows a sample."""
        hessian = np.asarray(find_statistics(self.store, group.linears[0], INPUT_HESSIAN)[0])
        total, rounder = 0.0, self._rounder(group)
        for linear in group.linears:
            near, rows = rounded(linear.weight, scheme, rounder), linear.weight.rows_shape[0]
            parts = sampled_rows(rows, ERROR_ROWS)
            seen = sum(part.stop - part.start for part in parts)
            for part in parts:
                lost = linear.weight.read_rows(part.start, part.stop).astype(np.float64)
                lost -= near.read_rows(part.start, part.stop)
                total += float(np.sum((lost @ hessian) * lost)) * rows / seen
        return total


def costs_of(groups: Sequence[Group], tokens: int) -> list[float]:
    """Multiply-adds of a measurement of each group: what comes behind it, and the head."""
    weights = [group.weights for group in groups]
    behind = np.cumsum(weights[::-1])[::-1]
    return [
        float(tokens * (sum(weights) if g.is_head else b))
        for g, b in zip(groups, behind, strict=True)
    ]


def _to_measure(schemes: Sequence[Scheme]) -> list[int]:
    """Indices of the formats that are measured: of each number of few bits, the one of the largest
    groups; the smallest format if there is none."""
    best: dict[int, int] = {}
    for index, one in enumerate(schemes):
        known = best.get(one.bits)
        if one.bits <= _MEASURED_BITS and (
            known is None or one.group_size > schemes[known].group_size
        ):
            best[one.bits] = index
    least = min(range(len(schemes)), key=lambda i: schemes[i].bits)
    return [best[bits] for bits in sorted(best)] or [least]


def _fewer(indices: Sequence[int], most: int) -> list[int]:
    """All of them, or of more than ``most`` the middle one."""
    return list(indices) if len(indices) <= most else [indices[len(indices) // 2]]


def note_hessians(
    model: ir.Model, tokens: Int32, groups: Sequence[Group], store: CalibrationStore
) -> None:
    """Keep the Hessians of the inputs of ``groups`` over windows of tokens [W, S]."""
    from optc.proof.reference.blockwise import observe  # brings ONNX Runtime
    from optc.proof.reference.input_hessians import HessianObserver

    names = {group.linears[0].x: group.tensors for group in groups}
    observer = HessianObserver(
        names, lambda value, found: store.put(names[value], INPUT_HESSIAN, found)
    )
    observe(model, tokens, [observer], usable_threads())
