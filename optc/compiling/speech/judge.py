"""The gates of engines of speech."""

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
from optc.proof.gates.speech.measure import measure_transcriber
from optc.runtime.audio.wav import Sound
from optc.runtime.encoded.open import as_tensors, open_part
from optc.runtime.engine import Engine
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.speech.step_writer import writer_of
from optc.runtime.speech.transcriber import Transcriber

if TYPE_CHECKING:
    from optc.importer.tensors.speech import ImportedSpeech

#: Opened engines by role.
Engines = Mapping[str, TensorsExecutable | Engine]


@dataclass(frozen=True)
class SpeechJudge:
    """Compares pairs of encoder and decoder with the source in PyTorch (`Judge`).

    Attributes:
        imported: With the source's own outputs.
        sounds: To write down.
    """

    imported: ImportedSpeech
    sounds: Sequence[Sound]

    @property
    def facts(self) -> Mapping[str, Any]:
        """Of the sounds."""
        return {
            "samples": len(self.sounds),
            "seconds": sum(sound.seconds for sound in self.sounds),
        }

    def open(self, folder: Path, entry: EngineEntry, threads: int) -> TensorsExecutable | Engine:
        """An encoder, or a decoder."""
        return open_part(folder, entry, threads, [self.imported.conventions.end])

    def measure(
        self, engines: Engines, baseline: Executables, bounds: Bounds, name: str
    ) -> Sequence[GateResult]:
        """Verdicts on a pair."""
        both = [_transcriber(self.imported, one) for one in (engines, baseline)]
        reference = source_transcriber(self.imported)
        return measure_transcriber(both[0], reference, both[1], self.sounds, bounds, name)


def source_transcriber(imported: ImportedSpeech) -> Transcriber:
    """The source itself in the loop that engines run in."""
    return _transcriber(imported, source_of(imported.models.by_role))


def _transcriber(imported: ImportedSpeech, engines: Engines) -> Transcriber:
    tokenizer = tokenizers.Tokenizer.from_str(imported.tokenizer)
    encoder, writer = as_tensors(engines[ENCODER]), writer_of(engines[TARGET])
    return Transcriber(encoder, writer, imported.conventions, tokenizer, {})
