"""One choice of neurons and formats: the items of a knapsack, an MLP with its neurons being one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import onnx_ir as ir

from optc.ir.linear import Linear
from optc.passes.numerics.knapsack import Choice, choose, least_size
from optc.passes.numerics.scheme import Scheme
from optc.passes.prune.structured.channels import Channels
from optc.passes.prune.structured.shapes import shapes_without
from optc.passes.quantize.budget.groups import Group
from optc.passes.quantize.budget.sensitivity import Rated
from optc.passes.quantize.layer_schemes import stored_bits


@dataclass(frozen=True)
class Structure:
    """Channels that may lose units, and the groups of weights that become smaller with them.

    Attributes:
        channels: The channels.
        groups: Indices of those groups: of the layers that read them, and that give them.
        left: Numbers of units that may stay, all of them first.
        losses: What the model loses with each number alone; the first is 0.
    """

    channels: Channels
    groups: tuple[int, ...]
    left: tuple[int, ...]
    losses: tuple[float, ...]


@dataclass(frozen=True)
class Joint:
    """The chosen units and formats.

    Attributes:
        left: Units of each structure that stay.
        formats: Of each group.
        bits: Of all groups together.
        loss: Sum of what each choice loses alone.
    """

    left: tuple[int, ...]
    formats: tuple[Scheme, ...]
    bits: int
    loss: float


@dataclass(frozen=True)
class _Option:
    """One possibility of an item: a number of units, and formats of the item's groups."""

    left: int
    formats: tuple[Scheme, ...]
    choice: Choice


@dataclass(frozen=True)
class Items:
    """The units and formats to choose from.

    Attributes:
        groups: All groups of weights.
        rated: Their formats, and what the model loses with each alone.
        structures: What may lose units; of each group at most one.
    """

    groups: Sequence[Group]
    rated: Sequence[Sequence[Rated]]
    structures: Sequence[Structure]

    def least(self) -> int:
        """Bits of the smallest choice."""
        return least_size([[one.choice for one in own] for own in self._options(1.0)])

    def choose(self, most: int, weight: float = 1.0) -> Joint:
        """The choice of the least loss within ``most`` bits, at least `least`.

        Args:
            most: Bits of all groups together.
            weight: Losses by units that go count so many times.
        """
        options = self._options(weight)
        indices = choose([[one.choice for one in own] for own in options], most)
        chosen = [own[i] for own, i in zip(options, indices, strict=True)]
        places = self._places()
        formats: dict[int, Scheme] = {}
        for (groups, _), one in zip(places, chosen, strict=True):
            formats |= dict(zip(groups, one.formats, strict=True))
        return Joint(
            tuple(one.left for one in chosen[: len(self.structures)]),
            tuple(formats[index] for index in range(len(self.groups))),
            sum(one.choice.size for one in chosen),
            sum(one.choice.loss for one in chosen),
        )

    def alone(self, most: int) -> Joint | None:
        """The choice of formats alone; None if the smallest ones have more bits than that."""
        bits = Items(self.groups, self.rated, ())
        if bits.least() > most:
            return None
        return replace(bits.choose(most), left=tuple(one.channels.units for one in self.structures))

    def _places(self) -> list[tuple[tuple[int, ...], Structure | None]]:
        """The groups of each item: those of structures first, then each other group."""
        taken = {index for one in self.structures for index in one.groups}
        rest = [((i,), None) for i in range(len(self.groups)) if i not in taken]
        return [*((one.groups, one) for one in self.structures), *rest]

    def _options(self, weight: float) -> list[list[_Option]]:
        found = []
        for groups, structure in self._places():
            if structure is None:
                found.append(_efficient(self._formats(groups, {}, 0, 0.0)))
                continue
            own: list[_Option] = []
            for left, loss in zip(structure.left, structure.losses, strict=True):
                shapes = shapes_without([structure.channels], [left])
                own += self._formats(groups, shapes, left, weight * loss)
            found.append(_efficient(own))
        return found

    def _formats(
        self,
        groups: Sequence[int],
        shapes: Mapping[ir.Value, tuple[int, int]],
        left: int,
        loss: float,
    ) -> Iterator[_Option]:
        """All formats of these groups, their weights having the given shapes."""
        sized = []
        for index in groups:
            linears = self.groups[index].linears
            found = [shapes.get(one.initializer, _shape(one)) for one in linears]
            sized.append(
                [
                    (one, sum(stored_bits(one.scheme, *shape) for shape in found))
                    for one in self.rated[index]
                    if all(_fits(one.scheme, columns) for _, columns in found)
                ]
            )
        for formats in product(*sized):
            size = sum(bits for _, bits in formats)
            total = loss + sum(one.kl for one, _ in formats)
            yield _Option(left, tuple(one.scheme for one, _ in formats), Choice(size, total))


def _shape(linear: Linear) -> tuple[int, int]:
    rows, columns = linear.weight.rows_shape
    return rows, columns


def _fits(scheme: Scheme, columns: int) -> bool:
    return not scheme.group_size or columns % scheme.group_size == 0


def _efficient(options: Iterator[_Option] | Sequence[_Option]) -> list[_Option]:
    """Those that no other beats in size and loss; the smallest first."""
    best: list[_Option] = []
    order = sorted(options, key=lambda one: (one.choice.size, one.choice.loss, -one.left))
    for one in order:
        if not best or one.choice.loss < best[-1].choice.loss:
            best.append(one)
    return best
