"""`vocab-trim`: rows of embedding, head and other tables of the tokens that stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.errors import InputError
from optc.ir.forms.decoder import Dense
from optc.ir.forms.form import Form
from optc.ir.graph import width
from optc.ir.pipeline.base import ALONE, LOCAL, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.vocabulary import digest_ids, read_ids
from optc.ir.weights import Array, RowReader, as_lazy, take_rows
from optc.proof.reference.partition import partition


@dataclass(frozen=True)
class VocabTrim(Pass):
    """Keeps the tokens that a text of the domain uses: embedding, head and other tables of tokens
    lose the rows of others.

    Logits of the tokens that stay are unchanged, so that the distribution of the next token is the
    source's, restricted to them. The compile chooses them by ``--calibration``, rewrites the
    tokenizer, and gives the pass the list; the reference of the gates has the same rows.

    Attributes:
        min_count: Tokens that the text has less often do not stay for it.
        folder: Where the list is.
        sha256: Of the list, in hex: what is recorded of it.
    """

    name: ClassVar[str] = "vocab-trim"
    phase: ClassVar[Phase] = Phase.VOCABULARY
    effects: ClassVar[Effect] = Effect.REMOVES_TOKENS
    unlike_class: ClassVar[str] = "tokens were removed"
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)
    before: ClassVar[tuple[str, ...]] = (
        *(
            "prune-to-budget",
            "calibrate",
            "balance-keys",
            "allocate-bits",
            "propagate-errors",
            "rotate",
            "smooth",
        ),
        *("quantize-weights", "quantize-static", "cast-weights"),
    )

    min_count: int = 1
    folder: str = field(default="", metadata=LOCAL)
    sha256: str = ""

    def __post_init__(self) -> None:
        """Check the options."""
        if self.min_count < 1:
            raise InputError(
                f"min_count={self.min_count} is not possible",
                where=f"pass {self.name}",
                hint="at least 1",
            )

    def ensures(self, model: ir.Model) -> None:
        """The logits are no wider than the list is long."""
        if self.folder and _tokens(model) > len(self._kept()):
            raise RuntimeError("vocab-trim left tokens that are not in the list")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            InputError: There is no list, or it is of another model.
        """
        if context.dry:
            return _not_run()
        report, parts, tokens = PassReport(), partition(model), _tokens(model)
        kept = self._rows(tokens)
        readers: dict[RowReader, RowReader] = {}
        for table in parts.tables:
            _take_rows(table, kept, readers, transposed=False)
            report.add("embedding" if table is parts.embedding else "table of tokens")
        head = parts.head.inputs[1]
        if head is not None and head is not parts.embedding:
            _take_rows(head, kept, readers, transposed=True)
            report.add("head")
        for node in parts.tail_nodes:
            for value in node.inputs:
                if value is not None and value.is_initializer() and width(value) == tokens:
                    _take_last(value, kept)
                    report.add("vector of logits")
        for node in (parts.head, *parts.tail_nodes):
            _narrow(node.outputs[0], len(kept))
        report.facts = {"tokens": tokens, "kept": len(kept)}
        return report

    def _rows(self, tokens: int) -> Array:
        """Rows of a model of so many tokens that stay; tokenizers may have more than it."""
        if not self.folder:
            raise InputError(
                "nothing says which tokens stay",
                where=f"pass {self.name}",
                hint="compile by a recipe, which gives the pass their list",
            )
        kept = self._kept()
        if self.sha256 and digest_ids(kept) != self.sha256:
            raise InputError("the ids are not those of the recipe's sha256", where=self.folder)
        if kept[0] >= tokens:
            raise InputError(
                f"the ids start at {kept[0]}, the model knows {tokens} tokens", where=self.folder
            )
        return np.array([one for one in kept if one < tokens])

    def _kept(self) -> list[int]:
        return read_ids(Path(self.folder))


def _tokens(model: ir.Model) -> int:
    return width(model.graph.outputs[0]) or 0


def _take_rows(
    value: ir.Value, kept: Array, readers: dict[RowReader, RowReader], *, transposed: bool
) -> None:
    """Keep rows of a table by tokens, in place; tables of one reader stay so, for they are tied."""
    weight = as_lazy(_tensor(value), transposed=transposed)
    taken = take_rows(weight, kept)
    taken.read_rows = readers.setdefault(weight.read_rows, taken.read_rows)
    value.const_value, value.shape = taken, taken.shape


def _take_last(value: ir.Value, kept: Array) -> None:
    """Keep elements of a constant [..., V], in place."""
    tensor = _tensor(value)
    taken = ir.Tensor(tensor.numpy()[..., kept], name=tensor.name)
    value.const_value, value.shape = taken, taken.shape


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    if value.const_value is None:
        raise RuntimeError(f"{value.name} has no value")
    return value.const_value


def _narrow(value: ir.Value, tokens: int) -> None:
    """State the width of logits."""
    if value.shape is not None:
        value.shape = ir.Shape([*list(value.shape)[:-1], tokens])


def _not_run() -> PassReport:
    """The report where nothing may be read: which tokens stay depends on a text."""
    report = PassReport(warnings=["sizes and costs are of the whole vocabulary"])
    report.add("not run")
    return report
