"""Transcripts of spoken sentences, beside those of transformers.

    python -m benchmarks.proof.speech FOLDER [--recipe NAME …] [--work DIR] [--results FILE]

FOLDER is a Whisper for transformers (`benchmarks.inputs.real_models` gets one). espeak-ng speaks
40 sentences, in four voices at four speeds. transformers writes them down greedily in float32, and
so does the artifact of each recipe, one sentence at a time and four together. Where the folder
does not name the tokens of languages, tasks and times, as the Hub's folders do, a copy of it that
does is what both read.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optc
from benchmarks.proof.speech.spoken import utterances
from optc.importer.tensors.speech import import_conventions
from optc.proof.gates.speech.words import error_rate
from optc.runtime.audio.resample import resample
from optc.runtime.audio.wav import Sound
from optc.runtime.tensors.texts import read_tokenizer

_RECIPES = ("speech-fp32", "speech-int8")


def completed(folder: Path, work: Path) -> Path:
    """A copy of a folder whose generation_config.json names all tokens that a prompt may have."""
    copy = work / folder.name
    copy.mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (copy / file.name).symlink_to(file.resolve())
    stated_file = folder / "generation_config.json"
    stated = json.loads(stated_file.read_text())
    known = import_conventions(folder)
    stated.setdefault("no_timestamps_token_id", known.no_timestamps)
    if known.languages:
        marked = {f"<|{code}|>": token for code, token in known.languages.items()}
        stated.setdefault("lang_to_id", marked)
        stated.setdefault("task_to_id", known.tasks)
    (copy / stated_file.name).unlink()
    (copy / stated_file.name).write_text(json.dumps(stated))
    return copy


def transformers_tokens(folder: Path, sounds: Sequence[Sound]) -> list[list[int]]:
    """Tokens of the texts that transformers writes."""
    import torch
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    known = import_conventions(folder)
    how = {"language": "en", "task": "transcribe"} if known.languages else {}
    found = []
    for sound in sounds:
        features = extractor(sound.samples, sampling_rate=sound.rate, return_tensors="pt")
        with torch.no_grad():
            tokens = model.generate(features.input_features, **how)[0].tolist()
        found.append([token for token in tokens if token < known.end])
    return found


def compared(
    artifact: Path, texts: Sequence[str], sounds: Sequence[Sound], wanted: Sequence[list[int]]
) -> dict[str, Any]:
    """Figures of one artifact."""
    with optc.load_transcriber(artifact) as loaded:
        language = "en" if loaded.conventions.languages else None
        alone = [loaded.transcribe(sound, language=language) for sound in sounds]
        together = loaded.transcribe_all(sounds, language=language)
    same = [list(a.tokens) == tokens for a, tokens in zip(alone, wanted, strict=True)]
    return {
        "utterances": len(sounds),
        "same_tokens": sum(same),
        "same_in_batches": sum(a.tokens == b.tokens for a, b in zip(alone, together, strict=True)),
        "word_error_rate": error_rate(
            [(one.text, text) for one, text in zip(alone, texts, strict=True)]
        ),
        "other_than_transformers": [
            one.text for one, is_same in zip(alone, same, strict=True) if not is_same
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recipe", action="append")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--work", type=Path)
    parser.add_argument("--results", type=Path)
    asked = parser.parse_args()
    spoken = utterances()
    texts = [text for text, _ in spoken]
    sounds = [Sound(resample(one.samples, one.rate, 16_000), 16_000) for _, one in spoken]
    with tempfile.TemporaryDirectory(dir=asked.work) as name:
        work = Path(name)
        folder = completed(asked.folder, work)
        wanted = transformers_tokens(folder, sounds)
        reader = read_tokenizer(folder / "tokenizer.json")
        said = [reader.decode(tokens) for tokens in wanted]
        rate = error_rate(list(zip(said, texts, strict=True)))
        figures: dict[str, Any] = {
            "model": asked.folder.name,
            "transformers": {"word_error_rate": rate},
        }
        print(json.dumps(figures), flush=True)
        for recipe in asked.recipe or _RECIPES:
            made = optc.compile(folder, recipe, work / Path(recipe).stem, set=tuple(asked.set))
            figures[recipe] = compared(made.path, texts, sounds, wanted)
            gates = made.report()["gates"]
            figures[recipe]["gates"] = {gate["name"]: gate["value"] for gate in gates}
            print(json.dumps({recipe: figures[recipe]}, indent=1), flush=True)
            shutil.rmtree(made.path)
    if asked.results is not None:
        asked.results.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
