"""`ReadsText`: what passes that run the model over a text have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import onnx_ir as ir

from optc.errors import InputError
from optc.executable.executable import Int32
from optc.forms.decoder import Dense
from optc.forms.form import Form
from optc.pipeline.base import LOCAL, Pass


@dataclass(frozen=True)
class ReadsText(Pass):
    """A pass that runs the float32 model over a text; ``--calibration`` gives it.

    Attributes:
        text: ``.jsonl`` (one ``{"text": …}`` a line) or plain text.
        folder: The model's, for its tokenizer.
        sha256: Of the text, in hex: what is recorded of it.
        windows: Windows of the text, evenly spaced.
        window_tokens: Tokens of each.
    """

    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)

    text: str = field(default="", metadata=LOCAL)
    folder: str = field(default="", metadata=LOCAL)
    sha256: str = ""
    windows: int = 16
    window_tokens: int = 512

    def requires(self, model: ir.Model) -> None:
        """There is a text.

        Raises:
            InputError: There is none.
        """
        if not self.text:
            raise InputError(
                "there is no text to calibrate with",
                where=f"pass {self.name}",
                hint="give one with --calibration FILE, such as the model was trained on",
            )

    def tokens(self) -> Int32:
        """Windows [W, S] of the text, documents framed as the model was trained."""
        from optc.reference.text import cut_windows, digest_text, read_documents, token_stream

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
