"""Sizes of dynamic dimensions that the example of a module does not have. An export may keep a size
of its example, and no error says so: the graph is compared with the module at some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optc.errors import EngineError, InputError, UnsupportedError
from optc.proof.gates.tensors.measure import Run
from optc.proof.gates.tensors.outputs import OutputFigures
from optc.runtime.executable.tensors_interface import TensorsInterface

if TYPE_CHECKING:
    from optc.importer.tensors.imported import ImportedTensors

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
Sizes = Mapping[str, int]
#: Largest difference over the largest value of an output; what is of another size is beyond it.
_MOST_ERROR = 1e-2
#: Values that are repeated differ by so much of themselves, so that no two are equal.
_SPREAD = 0.1
_HINT = (
    "leave such a dimension out of dynamic, or bound it by sizes that both take; forward may "
    "choose its way by a size, or PyTorch's export may keep that of the example"
)


def check_sizes(imported: ImportedTensors, original: Run) -> None:
    """Compare the graph with the module at larger and at smaller sizes than the example has, the
    first that the module takes of each.

    Args:
        imported: The model; without an example or a source there is nothing to compare.
        original: Runs its float32 graph.

    Raises:
        UnsupportedError: The graph fails where the module does not, or gives something else.
    """
    run, symbols = imported.reference, imported.interface.symbols
    if run is None or not imported.samples or not symbols:
        return
    example = imported.samples[0]
    sizes = sizes_of(example, imported.interface)
    if sizes is None:
        return
    for tried in (_larger(sizes, imported.interface), _smaller(sizes, imported.interface)):
        for one in tried:
            if one == sizes:
                continue
            sample = resized(example, imported.interface, one)
            try:
                wanted = run(sample)
            except InputError:
                continue  # the module does not take it
            _compare(original, sample, wanted, one, sizes)
            break


def sizes_of(example: Tensors, interface: TensorsInterface) -> dict[str, int] | None:
    """Of the dynamic dimensions of inputs; None where one has two sizes."""
    found: dict[str, int] = {}
    for spec in interface.inputs:
        for dim, size in zip(spec.dims, example[spec.name].shape, strict=True):
            if isinstance(dim, str) and found.setdefault(dim, size) != size:
                return None
    return found


def _larger(sizes: Sizes, interface: TensorsInterface) -> Iterator[dict[str, int]]:
    """Others for each dimension; then twice as many, as strides may have to divide them."""
    most = {name: interface.symbols[name].most for name in sizes}
    yield {name: min(n + 1 + index, most[name]) for index, (name, n) in enumerate(sizes.items())}
    yield {name: min(2 * n, most[name]) for name, n in sizes.items()}


def _smaller(sizes: Sizes, interface: TensorsInterface) -> Iterator[dict[str, int]]:
    """The least of all, which is often 1, where shapes spread; of one; then half as many."""
    least = {name: min(n, max(1, interface.symbols[name].least)) for name, n in sizes.items()}
    yield least
    yield from ({**sizes, name: least[name]} for name in sizes)
    yield {name: max(n // 2, least[name]) for name, n in sizes.items()}


def resized(example: Tensors, interface: TensorsInterface, sizes: Sizes) -> dict[str, Array]:
    """The example cut to smaller sizes, and repeated to larger ones."""
    source, found = np.random.default_rng(0), {}
    for spec in interface.inputs:
        array = example[spec.name]
        for axis, dim in enumerate(spec.dims):
            if isinstance(dim, str) and array.shape[axis]:
                places = np.arange(sizes[dim]) % array.shape[axis]
                array = np.take(array, places, axis)
        if array.size > example[spec.name].size and array.dtype.kind == "f":
            factors = 1 + _SPREAD * source.random(array.shape)
            array = (array * factors).astype(array.dtype)
        found[spec.name] = np.ascontiguousarray(array)
    return found


def _compare(original: Run, sample: Tensors, wanted: Tensors, sizes: Sizes, known: Sizes) -> None:
    where = ", ".join(f"{name} is {n}" for name, n in sizes.items() if n != known[name])
    try:
        found = original(sample)
    except EngineError as error:
        raise UnsupportedError(
            f"its graph fails where {where}, and the module does not: {error.message}",
            where="dynamic",
            hint=_HINT,
        ) from error
    larger = any(n > known[name] for name, n in sizes.items())
    for name, theirs in wanted.items():
        figures, ours = OutputFigures(), found[name]
        if ours.shape != theirs.shape:
            raise UnsupportedError(
                f"its graph gives {name!r} the shape {list(ours.shape)} where {where}, and the "
                f"module {list(theirs.shape)}",
                where="dynamic",
                hint=_HINT,
            )
        floats = theirs.dtype.kind == "f"
        if (larger and not floats) or (floats and np.isnan(theirs).any()):
            continue  # places of what is repeated, or a deviation of a single row
        figures.add({name: ours}, {name: theirs})
        apart = figures.values()["output_error"]
        if apart is not None and apart > _MOST_ERROR:
            raise UnsupportedError(
                f"its graph gives {name!r} other values than the module where {where}: they "
                f"differ by {apart:.2g} of the largest",
                where="dynamic",
                hint=_HINT,
            )
