"""Weights rounded by GPTQ on demand, by the Hessians that a calibration left in the model."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import numpy as np

from optc.errors import InputError
from optc.ir.linear import Linear
from optc.ir.quantized_rows import QuantizedTile
from optc.passes.numerics.affine import RoundRows
from optc.passes.numerics.gptq.factor import Factor, FactorOf, factor_of
from optc.passes.numerics.gptq.rows import gptq_rows
from optc.passes.numerics.rounding import Float32, Zeros
from optc.passes.numerics.scheme import Scheme
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.proof.reference.calibration import CalibrationStore, find_statistics

#: Factors that are kept: readers take a weight's rows tile after tile, and two weights at once.
KEPT = 2


class Factors:
    """Computes factors as they are needed, and keeps the last few: all of a model's would be as
    large as its weights. Any thread may ask.

    Args:
        store: Has the Hessians.
    """

    def __init__(self, store: CalibrationStore) -> None:
        self._store = store
        self._known: OrderedDict[tuple[str, int], Factor] = OrderedDict()
        self._lock = Lock()

    def rounder(self, linear: Linear, name: str) -> RoundRows:
        """Rounds rows of the weight of ``linear``.

        Raises:
            InputError: No calibration has seen its inputs.
        """
        if not find_statistics(self._store, linear, INPUT_HESSIAN):
            raise InputError(
                "nothing is known of its inputs",
                where=f"pass quantize-weights, {name}",
                hint="put propagate-errors before it, and give a --calibration text",
            )

        def round_rows(
            rows: Float32, scheme: Scheme, label: str, zeros: Zeros | None = None
        ) -> QuantizedTile:
            factor = self._factor(linear, scheme.group_size, name)
            return gptq_rows(rows, factor, scheme, label, zeros)

        return round_rows

    def later(self, linear: Linear, group_size: int, where: str) -> FactorOf:
        """Gives the factor for the weight of ``linear`` when it is called.

        Raises:
            InputError: No calibration has seen its inputs; ``where`` says which pass asks.
        """
        if not find_statistics(self._store, linear, INPUT_HESSIAN):
            raise InputError(
                "nothing is known of its inputs",
                where=f"{where}, {linear.name}",
                hint="put calibrate: {hessians: true} before it, and give a --calibration text",
            )
        return lambda: self._factor(linear, group_size, linear.name)

    def _factor(self, linear: Linear, group_size: int, name: str) -> Factor:
        key = name, group_size
        with self._lock:
            factor = self._known.pop(key, None)
            if factor is None:
                # of layers that were merged: they read one input, so all have the same
                hessian = find_statistics(self._store, linear, INPUT_HESSIAN)[0]
                factor = factor_of(np.asarray(hessian), group_size, name)
            self._known[key] = factor
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return factor
