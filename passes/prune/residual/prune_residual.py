"""`prune-residual`: channels of the residual stream are taken out, where they hold least."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.errors import InputError
from optc.executable.executable import Int32
from optc.ir.linear import find_linear, find_linears
from optc.passes.prune.residual.fit import StreamStages
from optc.passes.prune.residual.moments import principal_components, stream_moments
from optc.passes.prune.residual.narrow import (
    Basis,
    channels_of,
    has_bias,
    head_behind,
    is_tied,
    narrow,
    table_of,
    to_head,
    turn_stream,
)
from optc.passes.prune.structured.cut import refit
from optc.passes.prune.structured.decisions import Decisions, Ledger
from optc.passes.prune.structured.refit import Cut
from optc.passes.prune.structured.sizes import Sizes
from optc.passes.prune.structured.structures import PruneStructures
from optc.passes.prune.structured.target import Amounts, Target
from optc.passes.quantize.rotate.residual import NotTurnableError, Residual, find_residual
from optc.pipeline.base import Pass, PassReport
from optc.pipeline.phase import Effect
from optc.pipeline.work import Work
from optc.reference.calibration import calibration_of
from optc.reference.streams.gram import Float64
from optc.target import usable_threads

#: Statistics of the pass's own name in the store: see `Basis`.
_COLUMNS, _LAST, _TO_HEAD = "columns", "last norm", "to head"


@dataclass(frozen=True)
class PruneResidual(PruneStructures):
    """Turns the residual stream to its principal components over a text, and takes the last of them
    out: all layers that read or write it, and the embedding, become narrower (Ashkboos et al.,
    SliceGPT, 2024, arXiv:2401.15024, with one rotation for all blocks).

    The stream is found by dataflow, as by ``rotate``: writers are linear layers, readers RMS norms.
    One rotation needs no product on the way past each sub-layer. What is left is fitted to the
    unpruned model, layer after layer.

    Attributes:
        multiple: Channels that stay are a multiple of this, for kernels and groups of weights.
    """

    name: ClassVar[str] = "prune-residual"
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.REMOVES_WEIGHTS | Effect.REBASES_HIDDEN
    unlike_class: ClassVar[str] = "channels of the residual stream were removed"
    before: ClassVar[tuple[str, ...]] = (*PruneStructures.before, "prune-residual")

    target: str = "0.9x"
    multiple: int = 32

    def __post_init__(self) -> None:
        """Refuse what is no target or no multiple.

        Raises:
            InputError: It is none.
        """
        super().__post_init__()
        if self.multiple < 1:
            raise InputError("multiple must be at least 1", where=f"pass {self.name}")

    def working_bytes(self, model: ir.Model) -> int:
        """Both streams, and rotations."""
        from optc.passes.quantize.predictions.memory import turning

        return super().working_bytes(model) + turning(model)

    def work(self, model: ir.Model, later: Sequence[Pass] = ()) -> Work:
        """A run for the components, and two side by side in which layers are fitted."""
        from optc.passes.quantize.predictions.work import observing, propagating
        from optc.reference.streams.choice import products_here

        products = products_here(), products_here()
        work = observing(model, self.shape, hessians=False)
        if self.refit:
            work += propagating(model, self.shape, None, products, gptq=False)
        return work

    def reading_bytes(self, model: ir.Model, earlier: Sequence[Pass] = ()) -> int:
        """Tiles that are mixed while they are read."""
        from optc.passes.quantize.predictions.memory import turned

        return turned(model)

    def run_unread(self, model: ir.Model, later: Sequence[Pass]) -> PassReport:
        """Take out as many channels, whichever they are."""
        report, residual = PassReport(), self._found(model)
        size = self._width(model, later, report)
        report.add("channels", channels_of(residual) - size)
        narrow(model, residual, _plain(model, size))
        return report

    def _measure(self, model: ir.Model, tokens: Int32, later: Sequence[Pass]) -> PassReport:
        """Find the components on the text, fit what is left, and keep both in the store."""
        report, store = PassReport(), calibration_of(model)
        residual = self._found(model)
        size = self._width(model, later, report)
        columns, held = principal_components(stream_moments(model, tokens, residual))
        last = np.eye(len(columns))[:, :size]
        if self.refit:
            last = self._fit(model, tokens, columns, size, report)
        basis = columns[:, :size], columns @ last
        store.put([self.name], _COLUMNS, basis[0])
        store.put([self.name], _LAST, basis[1])
        head = head_behind(model, residual)
        if is_tied(head, table_of(residual)):
            store.put([self.name], _TO_HEAD, to_head(head, residual, *basis))
        Ledger(store, self.name).close()
        report.facts |= {
            "tokens": int(tokens.size),
            "channels": [len(columns), size],
            "held": float(f"{_held(held, size):.6g}"),
        }
        return report

    def _fit(
        self, model: ir.Model, tokens: Int32, columns: Float64, size: int, report: PassReport
    ) -> Float64:
        """Fit layers of the turned model, and keep their weights; what the last norm gave [D, n],
        turned, as a function of what it gives."""
        from optc.reference.streams.choice import products_here, run_products
        from optc.reference.two_streams import run_two_streams  # brings ONNX Runtime

        turned = model.clone()
        residual = find_residual(turned)
        turn_stream(residual, columns)
        kept = Cut(len(columns), size, np.arange(size))
        readers = [one for _, some in residual.readers for one in some]
        stages = StreamStages(
            dict.fromkeys(_initializers(readers), kept),
            Ledger(calibration_of(model), self.name),
            report,
            int(tokens.size),
            width=size,
            writers=frozenset(_initializers(residual.writers)),
        )
        threads = usable_threads()
        products = run_products((products_here(), products_here()), threads)
        run_two_streams(turned, tokens, stages, products, threads, start=stages.start)
        report.facts |= {
            "products": products.original.name,
            "block_loss": [float(f"{one:.3g}") for one in stages.lost],
        }
        return stages.last

    def _apply(self, model: ir.Model, found: Decisions, report: PassReport) -> None:
        store = calibration_of(model)
        columns, last = (store.find(self.name, one) for one in (_COLUMNS, _LAST))
        if columns is None or last is None:
            raise ValueError("nothing was decided about the residual stream")
        narrow(model, self._found(model), Basis(columns, last, store.find(self.name, _TO_HEAD)))
        refit(model, found.weights)
        report.add("channels", columns.shape[0] - columns.shape[1])

    def _found(self, model: ir.Model) -> Residual:
        """The stream.

        Raises:
            InputError: It cannot be made narrower; says what is in the way.
        """
        try:
            found = find_residual(model)
            head_behind(model, found)
            table_of(found)
            if self.refit and any(has_bias(node) for node in found.writers):
                raise NotTurnableError("biases are added to it, which need refit=false")
        except NotTurnableError as reason:
            report = PassReport()
            report.skip(None, str(reason))
            raise self._nothing("the residual stream cannot be made narrower", report) from reason
        return found

    def _width(self, model: ir.Model, later: Sequence[Pass], report: PassReport) -> int:
        """The most channels that meet the target."""
        whole = Sizes(model, later, _initializers(one.matmul for one in find_linears(model)))
        target, most = self._most(whole)
        channels = channels_of(find_residual(model))
        multiple = gcd(self.multiple, channels)
        for size in range(channels - multiple, 0, -multiple):
            left = _amounts(model, later, size)
            if target.counted(left) <= most:
                break
        else:
            raise self._unmet(target, most, target.counted(left))
        report.facts |= _facts(target, whole.of({}), left)
        return size


def _facts(target: Target, before: Amounts, after: Amounts) -> dict[str, object]:
    return {
        "parameters": [before.parameters, after.parameters],
        "weight_bytes": [before.weight_bits // 8, after.weight_bits // 8],
        "target": [target.text(target.counted(one)) for one in (before, after)],
    }


def _amounts(model: ir.Model, later: Sequence[Pass], size: int) -> Amounts:
    """What the model has with a stream of ``size`` channels."""
    part = model.clone()
    narrow(part, find_residual(part), _plain(part, size))
    return Sizes(part, later, _initializers(one.matmul for one in find_linears(part))).of({})


def _plain(model: ir.Model, size: int) -> Basis:
    """The first channels."""
    columns = np.eye(channels_of(find_residual(model)))[:, :size]
    return Basis(columns, columns, np.eye(size))


def _initializers(matmuls: Iterable[ir.Node]) -> list[ir.Value]:
    linears = map(find_linear, matmuls)
    return [one.initializer for one in linears if one is not None]


def _held(held: Float64, size: int) -> float:
    """The share of all that is in the first components; all where there is nothing."""
    whole = float(held.sum())
    return float(held[:size].sum()) / whole if whole else 1.0
