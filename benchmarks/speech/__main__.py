"""Measure a Whisper beside transformers and faster-whisper (CTranslate2) in one run.

    python -m benchmarks.speech FOLDER [--workdir DIR] [--rounds 5] [--sounds 12] [--only TEXT]…
                                [--threads N] [--json FILE]

FOLDER is a Whisper for transformers (`benchmarks.inputs.real_models` gets one). espeak-ng speaks
the sentences of `benchmarks.proof.speech`; every engine writes down one after the other, greedily,
without times, from samples to text. First all 40, for the rate of wrong words and the number of
texts that are those of transformers; then some of them in turns. Figures are medians over rounds,
milliseconds a sentence. An engine that cannot be made or started is listed with its reason. Run it
on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import optc
from benchmarks.peers import environments
from benchmarks.peers.measuring import Worker
from benchmarks.peers.tools import FailedError, run
from benchmarks.proof.speech.__main__ import completed
from benchmarks.proof.speech.spoken import utterances
from optc.errors import OptcError
from optc.importer.tensors.speech import import_conventions
from optc.proof.gates.speech.words import error_rate, words
from optc.runtime.audio.resample import resample

_WORKER = Path(__file__).parent / "workers" / "speech_worker.py"
_CONVERTER, _RUNNER = "ctranslate2", "faster-whisper"
#: The row that others are compared with.
REFERENCE = "transformers fp32"
_RATE = 16_000


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.speech", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workdir", type=Path, default=Path(".speech"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sounds", type=int, default=12, help="sentences of a round")
    parser.add_argument("--only", action="append", help="rows whose label contains TEXT")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    return parser.parse_args(given)


@dataclass(frozen=True)
class Maker:
    """Makes engines of a folder under a work folder, once each.

    Attributes:
        folder: Of the model; it names its tokens (`benchmarks.proof.speech`).
        work: Where engines go.
        threads: Of each.
        sounds: File of the samples.
    """

    folder: Path
    work: Path
    threads: int
    sounds: Path

    def makers(self) -> dict[str, Callable[[], tuple[str, ...]]]:
        """By label, a function that makes the engine and gives the command of its worker."""
        return {
            REFERENCE: lambda: self._row("transformers", self.folder),
            "optc int8": lambda: self._optc("speech-int8"),
            "optc fp32": lambda: self._optc("speech-fp32"),
            "faster-whisper int8": lambda: self._faster("int8"),
            "faster-whisper fp32": lambda: self._faster("float32"),
        }

    def _row(self, kind: str, path: Path, python: str = sys.executable) -> tuple[str, ...]:
        language = "en" if import_conventions(self.folder).languages else "-"
        given = (kind, str(path), str(self.threads), language, str(self.sounds))
        return (python, str(_WORKER), *given)

    def _optc(self, recipe: str) -> tuple[str, ...]:
        place = self.work / f"{self.folder.name}-{recipe}"
        if not place.exists():
            optc.compile(self.folder, recipe, place, gate=("none",))
        return self._row("optc", place)

    def _faster(self, kind: str) -> tuple[str, ...]:
        place = self.work / f"{self.folder.name}-ctranslate2-{kind}"
        if not (place / "model.bin").exists():
            program = environments.ensure(_CONVERTER, self.work) / "ct2-transformers-converter"
            options = ["--model", str(self.folder), "--output_dir", str(place), "--force"]
            copied = ["--copy_files", "tokenizer.json", "preprocessor_config.json"]
            run([str(program), *options, "--quantization", kind, *copied])
        python = environments.ensure(_RUNNER, self.work) / "python"
        return self._row(f"faster-whisper-{kind}", place, str(python))


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results as Markdown."""
    lines = [
        "| engine | ms a sentence | words wrong | texts of transformers |",
        "|---|---|---|---|",
    ]
    for label, found in results.items():
        if "reason" in found:
            lines.append(f"| {label} | {found['reason']} | | |")
            continue
        same = "" if found["same"] is None else f"{found['same']} of {found['sentences']}"
        pace = f"{statistics.median(found['milliseconds']):.0f}"
        lines.append(f"| {label} | {pace} | {100 * found['word_error_rate']:.2f} % | {same} |")
    return "\n".join(lines)


def figures(texts: Sequence[str], said: Sequence[str], wanted: Sequence[str] | None) -> Any:
    """Quality of the texts that an engine wrote.

    Args:
        texts: Its own.
        said: What was spoken.
        wanted: Those of the reference; None where it did not run.
    """
    same = None
    if wanted is not None:
        same = sum(words(a) == words(b) for a, b in zip(texts, wanted, strict=True))
    rate = error_rate(list(zip(texts, said, strict=True)))
    return {"sentences": len(texts), "same": same, "word_error_rate": rate, "milliseconds": []}


def main() -> None:
    """Make, compare and time."""
    asked = arguments()
    spoken = utterances()
    said = [text for text, _ in spoken]
    asked.workdir.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    rows: dict[str, Worker] = {}
    with ExitStack() as stack, tempfile.TemporaryDirectory(dir=asked.workdir) as scratch:
        file = Path(scratch) / "sounds.npz"
        samples = [resample(one.samples, one.rate, _RATE) for _, one in spoken]
        named: dict[str, Any] = {str(index): one for index, one in enumerate(samples)}
        np.savez(file, **named)
        folder = completed(asked.folder, Path(scratch))
        maker = Maker(folder, asked.workdir, asked.threads, file)
        wanted: list[str] | None = None
        for label, make in maker.makers().items():
            if asked.only and not any(text in label for text in asked.only):
                continue
            try:
                worker = Worker(make())
                stack.callback(worker.close)
                texts = worker.ask("write", sounds=list(range(len(said))))["texts"]
            except (FailedError, OptcError, OSError, ValueError) as error:
                results[label] = {"reason": " ".join(str(error).split())[:200]}
                continue
            wanted = texts if label == REFERENCE else wanted
            results[label], rows[label] = figures(texts, said, wanted), worker
            print(f"· {label}", file=sys.stderr)
        for _ in range(asked.rounds):
            for label, worker in rows.items():
                seconds = worker.ask("write", sounds=list(range(asked.sounds)))["seconds"]
                results[label]["milliseconds"].append(1e3 * seconds / asked.sounds)
    print(table(results))
    if asked.json:
        stated = {"model": asked.folder.name, "threads": asked.threads, "rows": results}
        asked.json.write_text(json.dumps(stated, indent=1) + "\n")


if __name__ == "__main__":
    main()
