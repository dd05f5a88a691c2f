"""Calibrations that were made before, found again in a cache folder."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optc.executable.executable import Int32
from optc.ir.weights import LazyWeight
from optc.pipeline.base import PassReport
from optc.reference.calibration import CalibrationStore, digest_array
from optc.reference.calibration_cache import VERSION, CalibrationCache, DamagedEntryError

#: Packages whose arithmetic the statistics are.
_PACKAGES = ("numpy", "onnxruntime")


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
        if not self.folder:
            return compute()
        cache, before, damaged = CalibrationCache(Path(self.folder)), set(store.statistics()), ""
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
        if damaged:
            report.warnings.append(damaged)
        return report


def calibration_key(model: ir.Model, tokens: Int32, store: CalibrationStore, *specs: str) -> str:
    """Digest of a model in dense form, its tokens, what is known already, and specs of passes."""
    whole = hashlib.sha256(repr((VERSION, [version(one) for one in _PACKAGES], specs)).encode())
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
