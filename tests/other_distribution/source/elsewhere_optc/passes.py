"""Passes that read a text, take out structures and write an operator of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.forms.decoder import Dense
from optc.ir.forms.form import Form
from optc.ir.forms.ragged import RaggedStep
from optc.ir.functions import make_node
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.calibrating.reads_text import ReadsText
from optc.passes.prune.structured.channels import find_channels
from optc.passes.prune.structured.cut import cut_channels


@dataclass(frozen=True)
class Observe(ReadsText):
    """Counts the tokens of the text that passes calibrate with."""

    name: ClassVar[str] = "elsewhere-observe"
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.KEEPS_PARAMETERS

    def on_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Count tokens; the graph stays."""
        report = PassReport(facts={"tokens": int(self.tokens(model).size)})
        report.add("text")
        return report


@dataclass(frozen=True)
class DropNeurons(Pass):
    """Takes the last neurons out of each MLP.

    Attributes:
        share: Of them.
    """

    name: ClassVar[str] = "elsewhere-drop-neurons"
    phase: ClassVar[Phase] = Phase.STRUCTURE
    effects: ClassVar[Effect] = Effect.REMOVES_WEIGHTS
    required: ClassVar[bool] = True
    removes: ClassVar[str] = "neurons"
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)

    share: float = 0.5

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Cut rows and columns of the weights."""
        report = PassReport()
        for channels in find_channels(model, "neurons", report):
            kept = round((1 - self.share) * channels.units)
            report.add("neurons", channels.units - kept)
            cut_channels(model, channels, np.arange(kept))
        return report


@dataclass(frozen=True)
class Scale(Pass):
    """Logits pass an operator of this package.

    Attributes:
        factor: They are multiplied with it.
    """

    name: ClassVar[str] = "elsewhere-scale"
    phase: ClassVar[Phase] = Phase.ADDITION
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    takes: ClassVar[tuple[type[Form], ...]] = (RaggedStep,)
    gives: ClassVar[type[Form]] = RaggedStep

    factor: float = 1.0

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Append the operator."""
        report, logits = PassReport(), model.graph.outputs[0]
        shapes = [list(logits.shape or ())]
        attributes = {"factor": self.factor}
        node = make_node(model, "ElsewhereTimes", [logits], attributes, shapes=shapes)
        model.graph.append(node)
        name, logits.name = logits.name, "unscaled"
        node.outputs[0].name = name
        model.graph.outputs[0] = node.outputs[0]
        report.add("logits")
        return report


#: Found by the entry point `optc.passes`.
PASSES = (Observe, DropNeurons, Scale)
