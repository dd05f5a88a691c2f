"""Random inputs of sizes that a model takes: found by trying, as no graph says them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.compiling.tensors.calibration import rows_dim
from optc.errors import EngineError
from optc.runtime.executable.tensors_interface import TensorsInterface, TensorSpec

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
#: Rows of a call, and sizes of all other dynamic dimensions, in the order in which they are tried:
#: a spectrum needs a window of samples, an image the product of all strides.
_ROWS, _SIZES = (2, 1), (2, 16, 64, 128, 224, 256, 640, 1024, 4096, 16384)
#: Rows and size of further samples, in multiples of a half of the first size.
_MORE = ((5, 5), (3, 3))
#: Entries of an input; larger ones are not tried.
_MOST_ENTRIES = 1 << 24


def random_samples(
    interface: TensorsInterface, run: Callable[[Tensors], object]
) -> tuple[Tensors, ...]:
    """Samples of seeded noise: floats of a normal distribution, integers of 0 and 1. Integers that
    are one for each row, or one in all, are lengths of the rows where the model takes those: with
    lengths of 0 and 1 it would have nothing to compute.

    Args:
        interface: Of the model. Its dynamic dimensions get the first size that the model takes, and
            two more sizes if it takes them, too.
        run: Computes outputs.

    Returns:
        At least one. It is of the smallest size if the model takes none.
    """
    for size in _SIZES if interface.symbols else (_fixed_size(interface),):
        for rows, lengths in product(_ROWS, (True, False)):
            draw = _Draw(interface, lengths)
            first = draw.sample(rows, size)
            if _is_taken(first, run):
                return first, *_more(draw, size, run, first)
    return (_Draw(interface, lengths=False).sample(_ROWS[0], _SIZES[0]),)


def _fixed_size(interface: TensorsInterface) -> int:
    """The last axis of the largest input: of a sound, or of its frames."""
    largest = max(
        (one.dims for one in interface.inputs), key=lambda dims: math.prod(map(int, dims))
    )
    return int(largest[-1]) if largest else 1


def _more(
    draw: _Draw, size: int, run: Callable[[Tensors], object], first: Tensors
) -> Iterator[Tensors]:
    """Samples of other sizes, those that the model takes."""
    shapes = {_shapes(first)}
    for rows, halves in _MORE:
        # Where strides must divide a size, a multiple of the first one is taken.
        for other in (size * halves // 2, size * 2, size):
            sample = draw.sample(rows, other)
            if _shapes(sample) not in shapes and _is_taken(sample, run):
                shapes.add(_shapes(sample))
                yield sample
                break


def _is_taken(sample: Tensors, run: Callable[[Tensors], object]) -> bool:
    if any(array.size > _MOST_ENTRIES for array in sample.values()):
        return False
    try:
        run(sample)
    except EngineError:
        return False
    return True


def _shapes(sample: Tensors) -> tuple[tuple[int, ...], ...]:
    return tuple(array.shape for array in sample.values())


class _Draw:
    """Draws samples; ``lengths``: integers of fewer than two axes are the size of the sample."""

    def __init__(self, interface: TensorsInterface, lengths: bool) -> None:
        self._interface, self._lengths = interface, lengths
        self._rows = rows_dim(interface)

    def sample(self, rows: int, size: int) -> Tensors:
        """Noise of so many rows, where an axis is one of rows, and of a size for all other dynamic
        dimensions; as far as their bounds allow."""
        source = np.random.default_rng(0)
        return {one.name: self._noise(source, one, rows, size) for one in self._interface.inputs}

    def _noise(self, source: np.random.Generator, spec: TensorSpec, rows: int, size: int) -> Array:
        shape = [self._size(dim, rows, size) for dim in spec.dims]
        kind = np.dtype(spec.dtype)
        if math.prod(shape) > _MOST_ENTRIES:
            return np.broadcast_to(np.zeros((), kind), shape)  # takes no memory, and is not tried
        if kind.kind == "f":
            return source.standard_normal(shape).astype(kind)
        if self._lengths and kind.kind in "iu" and len(shape) < 2:
            return np.full(shape, min(size, np.iinfo(kind).max), kind)
        return source.integers(0, 2, shape).astype(kind)

    def _size(self, dim: str | int, rows: int, size: int) -> int:
        if not isinstance(dim, str):
            return dim
        bounds = self._interface.symbols[dim]
        return min(max(rows if dim == self._rows else size, bounds.least), bounds.most)
