"""The gates of engines that turn texts into texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers

from optc.artifact.manifest import EngineEntry
from optc.artifact.tasks.task import ENCODER, TARGET
from optc.compiling.parts.judging import Bounds, Executables, source_of
from optc.proof.gates.measure import GateResult
from optc.proof.gates.text_to_text.measure import measure_text_to_text
from optc.runtime.encoded.open import as_tensors, open_part
from optc.runtime.engine import Engine
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.text_to_text.generator import TextToTextGenerator
from optc.runtime.text_to_text.params import TextToTextOptions
from optc.runtime.text_to_text.step_writer import writer_of

if TYPE_CHECKING:
    from optc.importer.tensors.text_to_text import ImportedTextToText

#: Opened engines by role.
Engines = Mapping[str, TensorsExecutable | Engine]
#: Tokens that are written for each text that judges.
_TOKENS = 48


@dataclass(frozen=True)
class TextToTextJudge:
    """Compares pairs of encoder and decoder with the source in PyTorch (`Judge`).

    Attributes:
        imported: With the source's own outputs.
        texts: To read.
    """

    imported: ImportedTextToText
    texts: Sequence[str]

    @property
    def facts(self) -> Mapping[str, Any]:
        """Of the texts."""
        return {"samples": len(self.texts)}

    def open(self, folder: Path, entry: EngineEntry, threads: int) -> TensorsExecutable | Engine:
        """An encoder, or a decoder."""
        return open_part(folder, entry, threads, self.imported.conventions.ends)

    def measure(
        self, engines: Engines, baseline: Executables, bounds: Bounds, name: str
    ) -> Sequence[GateResult]:
        """Verdicts on a pair."""
        both = [_generator(self.imported, one) for one in (engines, baseline)]
        most = min(_TOKENS, self.imported.conventions.most_tokens)
        how: TextToTextOptions = {"max_tokens": most, "truncate": True}
        reference = source_generator(self.imported)
        return measure_text_to_text(both[0], reference, both[1], self.texts, bounds, name, how)


def source_generator(imported: ImportedTextToText) -> TextToTextGenerator:
    """The source itself in the loop that engines run in."""
    return _generator(imported, source_of(imported.models.by_role))


def _generator(imported: ImportedTextToText, engines: Engines) -> TextToTextGenerator:
    tokenizer = tokenizers.Tokenizer.from_str(imported.tokenizer)
    encoder, writer = as_tensors(engines[ENCODER]), writer_of(engines[TARGET])
    return TextToTextGenerator(encoder, writer, imported.conventions, tokenizer, {})
