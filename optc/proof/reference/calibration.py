"""Statistics of a calibration, by weight: what passes of quantization and pruning read.

A statistic is an array that belongs to the input of one or several linear layers: the largest
magnitude, a Hessian, a histogram. It is kept under the names of the original tensors, so that it
is found again after weights were merged. Arrays beyond a bound of memory lie in a temporary file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optc.ir.linear import Linear, sources
from optc.ir.weights import Array
from optc.system.room import save_array
from optc.system.scratch import Scratch

#: Bytes of statistics that are kept in memory.
MEMORY_BYTES = 256 << 20
#: Where a model keeps its statistics: beside the graph, never in a file.
_META_KEY = "optc.calibration"


@dataclass(frozen=True)
class Statistic:
    """One array of a calibration.

    Attributes:
        weight: Name of the original tensor whose layer's input it describes.
        name: Which statistic.
        shape: Shape of the array.
        dtype: Its NumPy type, as text.
        sha256: Of its bytes in C order, in hex.
    """

    weight: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    sha256: str


@dataclass(frozen=True)
class StatisticGroup:
    """An array, and all weights that share it as a statistic."""

    weights: tuple[str, ...]
    statistic: str
    array: Array


def digest_array(array: Array) -> str:
    """sha256 of its bytes in C order, in hex."""
    fixed = np.ascontiguousarray(array)
    return hashlib.sha256(fixed.reshape(-1).view(np.uint8).data).hexdigest()


class CalibrationStore:
    """Arrays by weight and statistic.

    Args:
        memory_bytes: Arrays that would take memory beyond this are written to a temporary folder
            and memory-mapped when they are read.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._free = memory_bytes
        self._arrays: dict[tuple[str, str], Array | Path] = {}
        self._known: dict[tuple[str, str], Statistic] = {}
        self._folder: Scratch | None = None
        self._origin: CalibrationStore | None = None  # keeps the folder of copied arrays

    def put(self, weights: Iterable[str], statistic: str, array: Array) -> None:
        """Keep ``array`` as a statistic of several weights, once; it replaces an earlier one."""
        fixed = np.ascontiguousarray(array).reshape(np.shape(array))
        digest = digest_array(fixed)
        kept = self._keep(fixed)
        for weight in weights:
            key = weight, statistic
            self._arrays[key] = kept
            self._known[key] = Statistic(weight, statistic, fixed.shape, fixed.dtype.str, digest)

    def find(self, weight: str, statistic: str) -> Array | None:
        """The array, or None if there is none; it must not be written to."""
        kept = self._arrays.get((weight, statistic))
        return np.load(kept, mmap_mode="r") if isinstance(kept, Path) else kept

    def copy(self) -> CalibrationStore:
        """A store of the same arrays, for other ones in the place of some."""
        other = CalibrationStore(self._free)
        other._arrays, other._known = self._arrays.copy(), self._known.copy()
        other._origin = self
        return other

    def statistics(self) -> Iterator[Statistic]:
        """The kept statistics, by weight and name."""
        return (self._known[key] for key in sorted(self._known))

    def groups(self, but: Collection[Statistic] = ()) -> Iterator[StatisticGroup]:
        """The arrays with the weights that share them; those of statistics in ``but`` left out."""
        shared: dict[int, list[Statistic]] = {}
        for one in self.statistics():
            if one not in but:
                shared.setdefault(id(self._arrays[one.weight, one.name]), []).append(one)
        for ones in shared.values():
            array = self.find(ones[0].weight, ones[0].name)
            if array is not None:
                yield StatisticGroup(tuple(one.weight for one in ones), ones[0].name, array)

    def digest(self) -> str:
        """sha256 over names, shapes, types and bytes of everything that is kept, in hex."""
        whole = hashlib.sha256()
        for one in self.statistics():
            whole.update(repr((one.weight, one.name, one.shape, one.dtype, one.sha256)).encode())
        return whole.hexdigest()

    def _keep(self, array: Array) -> Array | Path:
        if array.nbytes <= self._free:
            self._free -= array.nbytes
            copy = array.copy()
            copy.flags.writeable = False
            return copy
        if self._folder is None:
            self._folder = Scratch("calibration")
        path = Path(self._folder.name) / f"{len(list(Path(self._folder.name).glob('*.npy')))}.npy"
        save_array(path, array)
        return path


def calibration_of(model: ir.Model) -> CalibrationStore:
    """The statistics that belong to ``model`` and to its clones; empty until a pass calibrates."""
    store = model.graph.meta.setdefault(_META_KEY, CalibrationStore())
    if not isinstance(store, CalibrationStore):
        raise TypeError(f"{_META_KEY} is a {type(store).__name__}")
    return store


def own_calibration(model: ir.Model) -> CalibrationStore:
    """The statistics of ``model``, from now on apart from those of the clones that it has so far:
    for a pass that changes what they are statistics of."""
    store = calibration_of(model).copy()
    model.graph.meta[_META_KEY] = store
    return store


def weights_of(linear: Linear) -> list[str]:
    """Names of the original tensors that the weight of ``linear`` is made of."""
    return list(dict.fromkeys(one.name for one in sources([linear])))


def find_statistics(store: CalibrationStore, linear: Linear, statistic: str) -> list[Array]:
    """The statistic of every original tensor of ``linear`` that has it."""
    found = (store.find(weight, statistic) for weight in weights_of(linear))
    return [array for array in found if array is not None]
