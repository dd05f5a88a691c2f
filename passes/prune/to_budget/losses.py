"""The losses of models with fewer neurons, with formats, and with both: KL, measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.weights import LazyWeight
from optc.passes.calibrating.estimates import estimate, nearest_alike, runs_within
from optc.passes.numerics.scheme import Scheme
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.prune.structured.channels import Channels
from optc.passes.prune.structured.variants import measure_kl
from optc.passes.prune.to_budget.degrees import Degree, degrees_of, without
from optc.passes.prune.to_budget.joint import Joint, Structure
from optc.passes.prune.to_budget.places import Places
from optc.passes.quantize.budget.groups import Group, rounded
from optc.passes.quantize.budget.sensitivity import MOST_MACS, Rater
from optc.proof.reference.calibration import find_statistics
from optc.system.progress import tell

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Losses:
    """Measures one model.

    Attributes:
        rater: Has the model, the windows and the Hessians.
        groups: All groups of weights.
    """

    rater: Rater
    groups: Sequence[Group]

    def structures(self, places: Places) -> tuple[list[Structure], list[list[Degree]], set[int]]:
        """The loss of each number of units, the units that stay, and the indices of those measured.

        Of large models some are measured; the others' losses follow from the errors of their
        results, by the ratio that was measured nearby.
        """
        every = [one for one, _ in places.channels]
        degrees = []
        for index, (one, counts) in enumerate(zip(every, places.counts, strict=True)):
            tell("which neurons can go", index, len(every))
            degrees.append(degrees_of(one, counts, self._hessian(one)))
        roles = [self.groups[groups[0]].role for _, groups in places.channels]
        costs = [self._cost(index, len(every)) for index in range(len(every))]
        widest = max(len(counts) for counts in places.counts)
        chosen, most = runs_within(roles, costs, widest - 1, MOST_MACS)
        pairs = [(i, d) for i in chosen for d in _fewer(range(1, len(degrees[i])), most)]
        variants = [self._pruned({i: degrees[i][d]}, every, None) for i, d in pairs]
        found = measure_kl(self.rater.model, self.rater.tokens, variants)
        known: dict[int, dict[int, float]] = {}
        for (i, d), kl in zip(pairs, found, strict=True):
            known.setdefault(i, {})[d] = kl
        structures = []
        for i, (one, groups) in enumerate(places.channels):
            donor = i if i in known else nearest_alike(i, roles, list(known))
            ratios = {degrees[donor][d].error: kl for d, kl in known[donor].items()}
            kls = estimate([degree.error for degree in degrees[i][1:]], ratios)
            own = known.get(i, {})
            numbers = range(1, len(degrees[i]))
            losses = (own.get(d, kl) for d, kl in zip(numbers, kls, strict=True))
            counts = tuple(places.counts[i])
            structures.append(Structure(one, groups, counts, (0.0, *losses)))
        return structures, degrees, set(known)

    def wholes(
        self,
        choices: Sequence[Joint],
        structures: Sequence[Structure],
        degrees: Sequence[Sequence[Degree]],
    ) -> list[float]:
        """The loss of the model with each choice of units and formats as a whole."""
        variants = []
        for one in choices:
            kept = {
                i: degrees[i][structures[i].left.index(left)]
                for i, left in enumerate(one.left)
                if left < structures[i].channels.units
            }
            every = [structure.channels for structure in structures]
            variant = self._rounded(one)
            variants.append(variant | self._pruned(kept, every, one))
        return measure_kl(self.rater.model, self.rater.tokens, variants)

    def _pruned(
        self, kept: Mapping[int, Degree], channels: Sequence[Channels], formats: Joint | None
    ) -> dict[ir.Value, LazyWeight]:
        """Readers without units, in the formats of a choice, or in float32."""
        schemes: dict[ir.Value, Scheme] = {}
        if formats is not None:
            for group, scheme in zip(self.groups, formats.formats, strict=True):
                schemes |= {linear.initializer: scheme for linear in group.linears}
        return {
            linear.initializer: without(
                channels[index],
                linear,
                degree.kept,
                self._hessian(channels[index]),
                schemes.get(linear.initializer),
                gptq=self.rater.factors is not None,
            )
            for index, degree in kept.items()
            for linear in channels[index].linears
        }

    def _rounded(self, choice: Joint) -> dict[ir.Value, LazyWeight]:
        """All weights in their formats. Rows that go may stay: nothing reads their results."""
        found = {}
        for group, scheme in zip(self.groups, choice.formats, strict=True):
            first, factors = group.linears[0], self.rater.factors
            rounder = factors.rounder(first, first.name) if factors is not None else None
            for linear in group.linears:
                found[linear.initializer] = rounded(linear.weight, scheme, rounder)
        return found

    def _hessian(self, channels: Channels) -> Float64:
        found = find_statistics(self.rater.store, channels.linears[0], INPUT_HESSIAN)
        return np.asarray(found[0], np.float64)

    def _cost(self, index: int, count: int) -> float:
        """Multiply-adds of a measurement: of the model behind the channels."""
        whole = float(self.rater.tokens.size * sum(group.weights for group in self.groups))
        return whole * (count - index) / count


def _fewer(indices: Sequence[int], most: int) -> list[int]:
    """All of them, or of more than ``most`` the middle one."""
    return list(indices) if len(indices) <= most else [indices[len(indices) // 2]]
