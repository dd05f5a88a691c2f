"""The subject of a measurement: a real model by name, or a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.inputs.real_models.catalogue import MODELS, model_of
from benchmarks.inputs.real_models.fetch import real_model
from benchmarks.inputs.real_models.floats import float_folder
from optc.proof.reference.text import calibration_text

#: Real language models, by the names of `benchmarks.inputs.real_models`.
NAMES = tuple(model.name for model in MODELS if model.form == "gguf")


@dataclass(frozen=True)
class Subject:
    """A model that every tool converts.

    Attributes:
        name: Of folders and results.
        folder: Hugging Face folder of its weights: what every tool starts from.
        gguf: The GGUF file that the weights were dequantized from, if they were: tools that read
            GGUF start from it.
        calibration: Text (``.jsonl``) for every tool that calibrates; None: nothing calibrates,
            and optc rounds to nearest, as for weights that are random.
        note: What must be said beside figures.
    """

    name: str
    folder: Path
    gguf: Path | None = None
    calibration: Path | None = None
    note: str = ""

    @property
    def metadata_bytes(self) -> int:
        """Bytes of a GGUF file of this model before its tensors: the tokenizer, mostly."""
        if self.gguf is None:
            return 0
        import gguf  # a tool of the tests' environment, not needed for folders

        return int(gguf.GGUFReader(self.gguf).data_offset)

    def token_text(self, which: str) -> str:
        """The text of ``bos`` or ``eos``; empty if the model has none."""
        config = json.loads((self.folder / "config.json").read_text("utf-8"))
        number = config.get(f"{which}_token_id")
        content = json.loads((self.folder / "tokenizer.json").read_text("utf-8"))
        texts = {token["id"]: token["content"] for token in content["added_tokens"]}
        return str(texts.get(number, ""))


def real_subject(name: str) -> Subject:
    """A real model, fetched and dequantized unless that was done.

    Raises:
        InputError, UnavailableError: As `real_model` and `float_folder`.
    """
    model = model_of(name)
    gguf = real_model(name) / model.gguf
    return Subject(name, float_folder(name), gguf, calibration_text(), model.note)


def folder_subject(folder: Path) -> Subject:
    """A Hugging Face folder, such as one of random weights."""
    return Subject(folder.name, folder.resolve())
