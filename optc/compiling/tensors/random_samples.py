"""Random inputs of sizes that a model takes: found by trying, as no graph says them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optc.compiling.tensors.calibration import rows_dim
from optc.runtime.executable.tensors_interface import TensorsInterface, TensorSpec

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
#: Rows of a call, and sizes of all other dynamic dimensions, in the order in which they are tried:
#: a spectrum needs a window of samples, an image the product of all strides.
_ROWS, _SIZES = (2, 1), (2, 16, 64, 128, 224, 256, 640, 1024, 4096, 16384)
#: Rows of further samples, and their size in halves of the first one.
_MORE = ((5, 5), (3, 3))
#: Entries of an input; larger ones are not tried.
_MOST_ENTRIES = 1 << 24


class Sizes(NamedTuple):
    """The sizes of a sample.

    Attributes:
        rows: Size of the dimension that is the first axis of all inputs.
        size: Of all other dynamic dimensions.
        lengths: Integers of fewer than two axes are ``size``, and not 0 and 1.
    """

    rows: int
    size: int
    lengths: bool


def sizes_taken(interface: TensorsInterface, takes: Callable[[Sizes], bool]) -> Iterator[Sizes]:
    """The first sizes that a model takes, and two more if it takes them, too; none at all if it
    takes none that is tried.

    Integers that are one for each row, or one in all, are lengths of the rows where the model takes
    those: with lengths of 0 and 1 it would have nothing to compute.

    Args:
        interface: Of the model.
        takes: Tries a sample of sizes.
    """

    def allowed(one: Sizes) -> bool:
        return _is_small(interface, one) and takes(one)

    tried = product(_tried_sizes(interface), _ROWS, (True, False))
    first = next(filter(allowed, (Sizes(rows, size, own) for size, rows, own in tried)), None)
    if first is None:
        return
    yield first
    if not interface.symbols:
        return
    shapes = [shapes_of(interface, first)]
    for rows, halves in _MORE:
        # Where strides must divide a size, a multiple of the first one is taken.
        for size in (first.size * halves // 2, first.size * 2, first.size):
            one = Sizes(rows, size, first.lengths)
            if shapes_of(interface, one) not in shapes and allowed(one):
                shapes.append(shapes_of(interface, one))
                yield one
                break


def smallest(interface: TensorsInterface) -> Sizes:
    """For models that take nothing that is tried: gates say what is wrong with it."""
    return Sizes(_ROWS[0], _tried_sizes(interface)[0], lengths=False)


def sample_of(interface: TensorsInterface, sizes: Sizes) -> Tensors:
    """Seeded noise: floats of a normal distribution, integers of 0 and 1, or lengths; dynamic
    dimensions as far as their bounds allow."""
    source = np.random.default_rng(0)
    shapes = shapes_of(interface, sizes)
    return {
        one.name: _noise(source, one, shape, sizes)
        for one, shape in zip(interface.inputs, shapes, strict=True)
    }


def shapes_of(interface: TensorsInterface, sizes: Sizes) -> tuple[tuple[int, ...], ...]:
    """Shapes of the inputs."""
    of_rows = rows_dim(interface)

    def size(dim: str | int) -> int:
        if not isinstance(dim, str):
            return dim
        bounds = interface.symbols[dim]
        return min(max(sizes.rows if dim == of_rows else sizes.size, bounds.least), bounds.most)

    return tuple(tuple(map(size, one.dims)) for one in interface.inputs)


def _tried_sizes(interface: TensorsInterface) -> tuple[int, ...]:
    """Without dynamic dimensions: the last axis of the largest input, of a sound or its frames."""
    if interface.symbols:
        return _SIZES
    shapes = [tuple(map(int, one.dims)) for one in interface.inputs if one.dims]
    return (max(shapes, key=math.prod)[-1],) if shapes else (1,)


def _is_small(interface: TensorsInterface, sizes: Sizes) -> bool:
    return all(math.prod(shape) <= _MOST_ENTRIES for shape in shapes_of(interface, sizes))


def _noise(
    source: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...], sizes: Sizes
) -> Array:
    kind = np.dtype(spec.dtype)
    if kind.kind == "f":
        return source.standard_normal(shape).astype(kind)
    if sizes.lengths and kind.kind in "iu" and len(shape) < 2:
        return np.full(shape, min(sizes.size, np.iinfo(kind).max), kind)
    return source.integers(0, 2, shape).astype(kind)
