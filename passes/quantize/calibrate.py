"""`calibrate`: the ranges of the linear layers' inputs, measured on a text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.linear import Linear, find_linear
from optc.pipeline.base import LOCAL, Pass, PassReport
from optc.runtime.executable import Int32
from optc.target import usable_threads

#: Metadata of a weight's initializer: the largest magnitude that its input had.
INPUT_RANGE = "optc.input_range"


@dataclass(frozen=True)
class Calibrate(Pass):
    """Runs the float32 model over a text and notes the largest magnitude of each layer's input.

    Nothing is changed but metadata of the weights, which static quantization reads. One layer
    after the other is run by ONNX Runtime, for all windows, so that memory stays bounded.

    Attributes:
        text: ``.jsonl`` (one ``{"text": …}`` a line) or plain text; ``--calibration`` gives it.
        folder: The model's, for its tokenizer.
        sha256: Of the text, in hex: what is recorded of it.
        windows: Windows of the text, evenly spaced.
        window_tokens: Tokens of each.
    """

    name: ClassVar[str] = "calibrate"
    required: ClassVar[bool] = True
    before: ClassVar[tuple[str, ...]] = ("kv-cache",)

    text: str = field(default="", metadata=LOCAL)
    folder: str = field(default="", metadata=LOCAL)
    sha256: str = ""
    windows: int = 16
    window_tokens: int = 512

    def requires(self, model: ir.Model) -> None:
        """The model is in dense form, and there is a text.

        Raises:
            InputError: What is missing.
        """
        if not self.text:
            raise InputError(
                "there is no text to calibrate with",
                where=f"pass {self.name}",
                hint="give one with --calibration FILE, such as the model was trained on",
            )
        names = [value.name for value in model.graph.inputs]
        if names != ["input_ids", "position_ids"]:
            raise InputError("the model is not in dense form", where=f"pass {self.name}")

    def run(self, model: ir.Model) -> PassReport:
        """Annotate the weights of ``model``.

        Raises:
            InputError: The text or the tokenizer cannot be used.
        """
        from optc.gates.activation_ranges import activation_ranges  # brings ONNX Runtime

        report = PassReport()
        tokens = self._tokens()
        linears = [linear for node in model.graph if (linear := find_linear(node)) is not None]
        inputs = {linear.x for linear in linears}
        ranges = activation_ranges(model, inputs, tokens, usable_threads())
        for linear in linears:
            self._note(linear, ranges[linear.x], report)
        largest = max(linears, key=lambda linear: ranges[linear.x])
        report.facts = {
            "tokens": int(tokens.size),
            "largest_input": {"weight": largest.name, "magnitude": ranges[largest.x]},
        }
        return report

    def _note(self, linear: Linear, magnitude: float, report: PassReport) -> None:
        if magnitude == 0.0:
            report.skip(linear.matmul, "its input is zero on this text")
            return
        known = float(linear.initializer.metadata_props.get(INPUT_RANGE, "0"))
        linear.initializer.metadata_props[INPUT_RANGE] = repr(max(known, magnitude))
        report.add("linear layer")

    def _tokens(self) -> Int32:
        """Windows [W, S] of the text, documents framed as the model was trained."""
        from optc.gates.text import cut_windows, digest_text, read_documents, token_stream

        path, folder = Path(self.text), Path(self.folder)
        if self.sha256 and digest_text(path) != self.sha256:
            raise InputError("the text is not that of the recipe's sha256", where=self.text)
        bos, eos = _frame(folder)
        stream = token_stream(read_documents(path), folder / "tokenizer.json", bos, eos)
        return cut_windows(stream, self.window_tokens, self.windows)[:, :-1].copy()


def _frame(folder: Path) -> tuple[int | None, int | None]:
    """BOS and EOS of the model in ``folder``, where it has them."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the configuration: {error}", where=str(path)) from error
    ids = []
    for name in ("bos_token_id", "eos_token_id"):
        token = config.get(name)
        ids.append(token[0] if isinstance(token, list) and token else token)
    return ids[0], ids[1]
