"""`trained-weights`: what ``optc distill`` or ``optc qat`` made of the model's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import onnx_ir as ir

from optc.errors import InputError
from optc.importer.additions.trained import (
    RoundedTensor,
    TrainedFolder,
    digest_trained,
    read_trained,
)
from optc.ir.forms.decoder import Dense
from optc.ir.forms.form import Form
from optc.ir.linear import find_linears, head_of
from optc.ir.pipeline.base import ALONE, LOCAL, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.tensors import model_tensors
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.kept_rows import keep_rows
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import calibration_of


@dataclass(frozen=True)
class TrainedWeights(Pass):
    """Puts trained weights into the place of those that the passes before it leave.

    Float tensors replace those of the same name. Weights that ``optc qat`` rounded go into the
    calibration store, where ``propagate-errors`` and ``quantize-weights`` find them: they are not
    rounded again.

    Attributes:
        folder: What ``optc distill`` or ``optc qat`` wrote.
        sha256: Of its files (`digest_trained`), in hex: what is recorded of it. Where it is given
            it must be theirs.
    """

    name: ClassVar[str] = "trained-weights"
    phase: ClassVar[Phase] = Phase.TRAINED
    effects: ClassVar[Effect] = Effect.MOVES_KV | Effect.KEEPS_PARAMETERS
    added_by: ClassVar[str] = "--trained"
    knows_experts: ClassVar[bool] = False
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)
    before: ClassVar[tuple[str, ...]] = ("propagate-errors", "quantize-weights", "cast-weights")

    folder: str = field(default="", metadata=LOCAL)
    sha256: str = ""

    def requires(self, model: ir.Model) -> None:
        """The folder holds what the recipe names.

        Raises:
            InputError: It does not.
        """
        if not self.folder:
            raise InputError(
                "nothing says where the trained weights are",
                where=f"pass {self.name}",
                hint="compile with --trained FOLDER",
            )
        if self.sha256 and digest_trained(Path(self.folder)) != self.sha256:
            raise InputError("the weights are not those of the recipe's sha256", where=self.folder)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Replace the tensors of ``model``, and keep rounded ones for later passes.

        Raises:
            InputError: The folder was trained for another model, another pruning or other bits.
        """
        report, trained = PassReport(), read_trained(Path(self.folder))
        self._replace(model, trained, report)
        if trained.rounded:
            self._keep(model, trained, context.later, report)
        report.facts = {"kind": trained.kind, "tokens": trained.stated.get("tokens", 0)}
        return report

    def _replace(self, model: ir.Model, trained: TrainedFolder, report: PassReport) -> None:
        tensors = {str(v.name): one for one in model_tensors(model) for v in one.initializers}
        for name, stored in trained.tensors.items():
            tensor = tensors.get(name)
            if tensor is None or tensor.shape != stored.shape:
                has = "there is none" if tensor is None else f"here it has {list(tensor.shape)}"
                raise self._refusal(f"{name} was trained with shape {list(stored.shape)}, {has}")
            tensor.replace(stored.read_rows)
            report.add("tensor")

    def _keep(
        self,
        model: ir.Model,
        trained: TrainedFolder,
        later: Sequence[Pass],
        report: PassReport,
    ) -> None:
        quantize = next((one for one in later if isinstance(one, QuantizeWeights)), None)
        if quantize is None:
            raise self._refusal("the weights were rounded, and no quantize-weights comes after it")
        head, store = head_of(model), calibration_of(model)
        linears = {one.name: one for one in find_linears(model)}
        for name, rounded in trained.rounded.items():
            linear = linears.get(name)
            if linear is None:
                raise self._refusal(f"the model has no linear layer {name}")
            is_head = head is not None and linear.initializer is head.initializer
            wanted, found = quantize.scheme_of(linear, PassReport(), head=is_head), _scheme(rounded)
            if wanted != found:
                raise self._refusal(
                    f"{name} was trained as {found.label}, the recipe takes {wanted.label}"
                )
            if rounded.tile.values.shape != tuple(linear.weight.rows_shape):
                raise self._refusal(f"{name} was trained with another shape")
            keep_rows(store, linear, found, rounded.tile)
            report.add("rounded weight")

    def _refusal(self, message: str) -> InputError:
        return InputError(
            message,
            where=f"pass {self.name}",
            hint="compile the model and recipe that the weights were trained with",
        )


def _scheme(rounded: RoundedTensor) -> Scheme:
    return Scheme(rounded.bits, rounded.group_size, rounded.symmetric, rounded.integer_scales)
