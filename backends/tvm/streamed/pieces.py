"""The weights of an engine cut into pieces that stay in memory or do not, page by page."""

from __future__ import annotations

import itertools
import mmap
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.weights.weights_file import Placed
from optc.proof.roofline.costs import StepCosts

#: Largest piece: what is moved at once, and by how much the budget may be missed.
CHUNK = 4 << 20
#: Experts of a tensor with fewer bytes each are not told apart: scales, biases.
LEAST_EXPERT = 64 << 10
#: Names of tensors with the weights of all experts, one expert's after the other's
#: (`optc.backends.tvm.lowering.lower_experts`).
_EXPERTS = re.compile(r"\.experts(\.[a-z]+)?\Z")
_CHOSEN = re.compile(r":[0-9]+of([0-9]+)\Z")

Int64 = npt.NDArray[np.int64]
_NONE: Int64 = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Pieces:
    """Every page of the weights is in one piece at most.

    Attributes:
        files: int64 [n], in which file a piece lies (`optc.backends.tvm.weights.weights_file`).
        starts: int64 [n], first byte in the file; a whole page.
        sizes: int64 [n], in bytes; whole pages.
        bounds: Of each tensor, the pieces of its units (experts, or the whole): unit u has pieces
            ``bounds[u]:bounds[u + 1]``.
    """

    files: Int64
    starts: Int64
    sizes: Int64
    bounds: tuple[Int64, ...]

    def by_expert(self, tensor: int) -> bool:
        """True if the experts of a tensor have pieces of their own."""
        return len(self.bounds[tensor]) > 2

    def of(self, tensors: Iterable[int], chosen: Int64 | None) -> Int64:
        """Pieces of tensors, of experts only those ``chosen`` (None are all), in their order."""
        found = []
        for tensor in tensors:
            bounds = self.bounds[tensor]
            if chosen is None or len(bounds) <= 2:
                found.append(np.arange(bounds[0], bounds[-1]))
            else:
                found += [np.arange(bounds[one], bounds[one + 1]) for one in chosen]
        return np.concatenate(found) if found else _NONE


def cut(placed: Sequence[Placed], experts: int) -> Pieces:
    """Cut weights into pieces.

    A page with the end of one piece and the start of the next belongs to the latter.

    Args:
        placed: The tensors of the engine.
        experts: How many each mixture has; 0 where there are none, or not always as many.
    """
    files: list[int] = []
    starts: list[int] = []
    sizes: list[int] = []
    bounds = []
    for tensor in placed:
        units = _units(tensor, experts)
        each = (tensor.end - tensor.offset) // units
        first = [len(starts)]
        for unit in range(units):
            start = tensor.offset + unit * each
            for low, high in _chunks(start, start + each):
                files.append(int(tensor.own))
                starts.append(low)
                sizes.append(high - low)
            first.append(len(starts))
        bounds.append(np.array(first, np.int64))
    return Pieces(
        np.array(files, np.int64),
        np.array(starts, np.int64),
        np.array(sizes, np.int64),
        tuple(bounds),
    )


def experts_of(costs: StepCosts | None) -> int:
    """Experts of an engine's mixtures; 0 if it has none, states no costs, or mixtures differ."""
    if costs is None:
        return 0
    kinds = {kind for cost in costs.kernels.values() for kind in cost.bytes}
    found = {int(match[1]) for kind in kinds if (match := _CHOSEN.search(kind))}
    return found.pop() if len(found) == 1 else 0


def _units(tensor: Placed, experts: int) -> int:
    """Experts of the tensor that get pieces of their own; 1 if they do not."""
    if experts < 2 or not _EXPERTS.search(tensor.name) or tensor.shape[0] % experts:
        return 1
    return experts if (tensor.end - tensor.offset) // experts >= LEAST_EXPERT else 1


def _chunks(start: int, end: int) -> list[tuple[int, int]]:
    """Pages between two bytes, the first byte's too and the last one's not, at most `CHUNK` each,
    about equally many."""
    page = mmap.PAGESIZE
    low, high = start // page, end // page
    count = -(-(high - low) * page // CHUNK)
    cuts = [low + (high - low) * index // max(count, 1) for index in range(count + 1)]
    return [(a * page, b * page) for a, b in itertools.pairwise(cuts)]
