"""`ReadsText`: what passes that run the model over a text have in common."""

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
from optc.ir.pipeline.base import ALONE, LOCAL, Pass, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.calibrating.recall import Recall, calibration_key
from optc.proof.reference.calibration import calibration_of
from optc.runtime.executable.executable import Int32


@dataclass(frozen=True)
class ReadsText(Pass):
    """A pass that runs the float32 model over a text; ``--calibration`` gives it.

    Attributes:
        text: ``.jsonl`` (a line has ``text``, or ``messages``) or plain text; empty is the text
            shipped with optc, or random ids where the model has no tokenizer.
        folder: The model's, for its tokenizer.
        cache: Folder of calibrations that are used again; empty is none.
        sha256: Of the text, in hex: what is recorded of it.
        windows: Windows of the text, evenly spaced.
        window_tokens: Tokens of each.
    """

    phase: ClassVar[Phase] = Phase.STATISTICS
    effects: ClassVar[Effect] = Effect.READS_TEXT
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)

    text: str = field(default="", metadata=LOCAL)
    folder: str = field(default="", metadata=LOCAL)
    cache: str = field(default="", metadata=LOCAL)
    sha256: str = ""
    windows: int = 16
    window_tokens: int = 512

    def requires(self, model: ir.Model) -> None:
        """It is known whose tokenizer reads the text.

        Raises:
            InputError: It is not.
        """
        if not self.folder:
            raise InputError(
                "nothing says whose tokenizer reads the text to calibrate with",
                where=f"pass {self.name}",
                hint="compile by a recipe, which gives the pass the model's folder",
            )

    @property
    def shape(self) -> TextShape:
        """The amount of text that is read."""
        return TextShape(self.windows, self.window_tokens)

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """The text."""
        return self.text_costs()

    def text_costs(self, working: int = 0, left: int = 0) -> PassCosts:
        """Costs of the pass that reads its text.

        Args:
            working: Bytes of memory at the peak.
            left: Bytes that keep what is left.
        """
        return PassCosts(working, left, text_tokens=self.shape.tokens)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place: `on_text`, or `without_text` where nothing may be read."""
        return (self.without_text if context.dry else self.on_text)(model, context)

    def on_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Rewrite ``model`` in place by what `tokens` gives, and report.

        Raises:
            InputError: The text or the tokenizer cannot be used.
        """
        raise NotImplementedError  # pragma: no cover - abstract

    def without_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Do nothing: most of these passes leave the graph and the sizes of weights as they are."""
        report = PassReport()
        report.add("not run")
        return report

    def tokens(self, model: ir.Model) -> Int32:
        """Windows [W, S] of the text, documents framed as ``model`` was trained.

        Raises:
            InputError: The text, the tokenizer or the configuration cannot be used.
        """
        from optc.proof.conversations.tokens import window_start
        from optc.proof.reference.text import cut_windows

        tokenizer, vocabulary = self._tokenizer, width(model.graph.outputs[0]) or 0
        if not self.text and not tokenizer.is_file():
            shape = self.windows, self.window_tokens
            return np.random.default_rng(0).integers(0, vocabulary, shape, np.int32)
        bos, eos = self._frame()
        stream = self._stream(bos, eos)
        if stream.size and int(stream.max()) >= vocabulary:
            raise InputError(
                f"the tokenizer gives id {int(stream.max())}, the model knows {vocabulary} ids",
                where=str(tokenizer),
                hint="tokenizer and model do not belong together",
            )
        start = window_start(tokenizer, bos)
        return cut_windows(stream, self.window_tokens, self.windows, start)[:, :-1].copy()

    def recall(self, model: ir.Model, tokens: Int32, *later: str) -> Recall:
        """Finds the pass's calibration again; it depends on specs of ``later`` passes, too."""
        if not self.cache:
            return Recall("", "")
        store = calibration_of(model)
        return Recall(self.cache, calibration_key(model, tokens, store, self.spec(), *later))

    @property
    def _tokenizer(self) -> Path:
        return Path(self.folder) / "tokenizer.json"

    def _frame(self) -> tuple[int | None, int | None]:
        """BOS and EOS of the model."""
        from optc.importer.json_file import read_object
        from optc.importer.text_model.stated import frame

        return frame(read_object(Path(self.folder) / "config.json"))

    def _stream(self, bos: int | None, eos: int | None) -> Int32:
        from optc.proof.conversations.load import folder_chat
        from optc.proof.conversations.read import read_texts
        from optc.proof.conversations.tokens import kept_stream
        from optc.proof.reference.text import calibration_text, digest_text

        path = Path(self.text) if self.text else calibration_text()
        if self.sha256 and digest_text(path) != self.sha256:
            raise InputError("the text is not that of the recipe's sha256", where=str(path))
        chat = folder_chat(Path(self.folder))
        return kept_stream(read_texts(path), self._tokenizer, bos, eos, chat)


def some_windows(tokens: Int32, most: int) -> Int32:
    """At most so many of the windows [W, S], evenly spaced."""
    count = min(most, len(tokens))
    return tokens[np.linspace(0, len(tokens) - 1, count).round().astype(int)]
