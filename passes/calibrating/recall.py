"""Calibrations that were made before, found again in a cache folder."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import onnx_ir as ir

from optc.ir.pipeline.base import PassReport
from optc.ir.weights import LazyWeight
from optc.proof.reference.calibration import CalibrationStore, digest_array
from optc.proof.reference.calibration_cache import (
    VERSION,
    CalibrationCache,
    DamagedEntryError,
    cache_at,
)
from optc.runtime.executable.executable import Int32
from optc.system.cache_folder import code_digest

#: Packages whose arithmetic the statistics are.
_PACKAGES = ("numpy", "onnxruntime", "torch")
#: The value of a part that is one.
_VALUE = "value"


@dataclass(frozen=True)
class Recall:
    """Looks a calibration up, and keeps it where it is not there.

    Attributes:
        folder: The cache; empty is none.
        key: Hex digest of what the calibration depends on.
    """

    folder: str
    key: str

    def run(self, store: CalibrationStore, compute: Callable[[], PassReport]) -> PassReport:
        """The report of ``compute``, which fills ``store``, or the one that it had before.

        Raises:
            InputError: The cache folder cannot be written.
        """
        cache = self.cache()
        if cache is None:
            return compute()
        before, damaged = set(store.statistics()), ""
        try:
            known = cache.load(self.key, store)
        except DamagedEntryError:
            known, damaged = None, f"the calibration in {self.folder} was damaged: computed again"
        if known is not None:
            report = PassReport(**known)
            report.facts["from_cache"] = True  # not in details, which identify an artifact
            return report
        report = compute()
        cache.save(self.key, store.groups(before), dataclasses.asdict(report))
        self.parts().clear()
        if damaged:
            report.warnings.append(damaged)
        return report

    def cache(self) -> CalibrationCache | None:
        """The cache; None if there is none."""
        return cache_at(self.folder) if self.folder else None

    def parts(self) -> KeptParts:
        """The folder of parts of a calibration, until all of it is kept."""
        return KeptParts(self.cache(), self.key)


@dataclass
class KeptParts:
    """Results of parts of a long calibration, each kept as it is finished: a compile that was
    stopped goes on behind the last one.

    Attributes:
        cache: Keeps them; None keeps nothing.
        key: Of the calibration.
        found: How many parts were there.
    """

    cache: CalibrationCache | None = None
    key: str = ""
    found: int = 0

    def value(self, name: str, compute: Callable[[], Any]) -> Any:
        """A JSON value: what was kept under this name, else what ``compute`` gives.

        Args:
            name: Of the part; it says all that it depends on beside the calibration's key.
            compute: Gives the value.

        Raises:
            InputError: The cache folder cannot be written.
        """
        if self.cache is None:
            return compute()
        known = self._read(name)
        if known is not None:
            self.found += 1
            return known[_VALUE]
        value = compute()
        self.cache.save(self._key(name), (), {_VALUE: value})
        return value

    def statistics(self, name: str, store: CalibrationStore, compute: Callable[[], None]) -> None:
        """Statistics: those kept under this name, else what ``compute`` puts into ``store``.

        Raises:
            InputError: The cache folder cannot be written.
        """
        if self.cache is None:
            compute()
            return
        if self._read(name, store) is not None:
            self.found += 1
            return
        before = set(store.statistics())
        compute()
        self.cache.save(self._key(name), store.groups(before), {})

    def clear(self) -> None:
        """Remove all of them: the calibration is complete."""
        if self.cache is not None:
            for key in self.cache.keys(self._key("")):
                self.cache.remove(key)

    def _read(self, name: str, store: CalibrationStore | None = None) -> dict[str, Any] | None:
        """The facts of a part; None where it is not there, or was damaged."""
        if self.cache is None:
            return None
        try:
            return self.cache.load(self._key(name), store or CalibrationStore())
        except DamagedEntryError:  # it is removed, and computed again
            return None

    def _key(self, name: str) -> str:
        return f"{self.key}-part-{name}"


def name_of(part: object) -> str:
    """A name for a part of a calibration, out of the text of all that it depends on."""
    return hashlib.sha256(repr(part).encode()).hexdigest()[:32]


def calibration_key(model: ir.Model, tokens: Int32, store: CalibrationStore, *specs: str) -> str:
    """Digest of a model in dense form, its tokens, what is known already, and specs of passes."""
    code = VERSION, code_digest(), [version(one) for one in _PACKAGES]
    whole = hashlib.sha256(repr((code, specs)).encode())
    whole.update(repr((tokens.shape, store.digest())).encode())
    whole.update(np.ascontiguousarray(tokens).data)
    for node in model.graph:
        inputs = [None if value is None else value.name for value in node.inputs]
        options = sorted((one.name, _text(one)) for one in node.attributes.values())
        names = [value.name for value in node.outputs]
        whole.update(repr((node.domain, node.op_type, inputs, names, options)).encode())
    for name, value in sorted(model.graph.initializers.items()):
        tensor = value.const_value
        if isinstance(tensor, LazyWeight):
            whole.update(repr((name, tensor.rows_shape, tensor.transposed)).encode())
            for start, stop in tensor.tiles():
                whole.update(digest_array(tensor.read_rows(start, stop)).encode())
        elif tensor is not None:
            array = tensor.numpy()
            whole.update(repr((name, array.shape, digest_array(array))).encode())
    return whole.hexdigest()


def _text(attribute: ir.Attr) -> str:
    value = attribute.value
    if isinstance(value, ir.TensorProtocol):
        array = value.numpy()
        return repr((array.shape, str(array.dtype), array.tobytes()))
    return repr(value)
