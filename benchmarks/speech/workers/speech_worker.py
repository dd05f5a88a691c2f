"""One engine that writes down speech: ``KIND PATH THREADS LANGUAGE SOUNDS``, requests by `serving`.

Runs in the engine's own environment. SOUNDS is a file of NumPy with float32 samples at 16 kHz,
``0``, ``1`` …; LANGUAGE is a code, or ``-`` where the model knows one alone. The operation:

    write  {"sounds": [0, 3, …]}  -> {"texts": [...], "seconds": s}, one sound a call
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "peers" / "workers"))

from serving import serve, take_stdout

_RATE = 16_000


def open_optc(path: str, threads: int, language: str | None) -> Any:
    """An artifact."""
    import optc

    engine = optc.load_transcriber(path, threads=threads)
    return lambda samples: engine.transcribe(samples, language=language).text


def open_transformers(path: str, threads: int, language: str | None) -> Any:
    """The folder in PyTorch float32."""
    import tokenizers
    import torch
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    torch.set_num_threads(threads)
    model = WhisperForConditionalGeneration.from_pretrained(path, dtype=torch.float32).eval()
    extractor = WhisperFeatureExtractor.from_pretrained(path)
    reader = tokenizers.Tokenizer.from_file(str(Path(path) / "tokenizer.json"))
    how = {} if language is None else {"language": language, "task": "transcribe"}

    def write(samples: Any) -> str:
        features = extractor(samples, sampling_rate=_RATE, return_tensors="pt").input_features
        with torch.inference_mode():
            tokens = model.generate(features, **how)[0].tolist()
        return str(reader.decode(tokens, skip_special_tokens=True))

    return write


def open_faster_whisper(path: str, threads: int, language: str | None, kind: str) -> Any:
    """A folder that CTranslate2 has converted: greedy, without times, as the others."""
    from faster_whisper import WhisperModel

    model = WhisperModel(path, device="cpu", compute_type=kind, cpu_threads=threads)

    def write(samples: Any) -> str:
        parts, _ = model.transcribe(
            samples,
            language=language or "en",
            beam_size=1,
            temperature=0.0,
            without_timestamps=True,
            condition_on_previous_text=False,
        )
        return "".join(part.text for part in parts)

    return write


KINDS: dict[str, Any] = {
    "optc": open_optc,
    "transformers": open_transformers,
    "faster-whisper-int8": partial(open_faster_whisper, kind="int8"),
    "faster-whisper-float32": partial(open_faster_whisper, kind="float32"),
}


def main() -> None:
    """Open the engine and answer."""
    kind, path, threads, language, file = sys.argv[1:6]
    answers = take_stdout()
    write = KINDS[kind](path, int(threads), None if language == "-" else language)
    with np.load(file) as found:
        sounds = {int(name): found[name] for name in found.files}

    def written(request: dict[str, Any]) -> dict[str, Any]:
        begun = time.perf_counter()
        texts = [write(sounds[index]) for index in request["sounds"]]
        return {"texts": texts, "seconds": time.perf_counter() - begun}

    serve({"write": written}, {"name": kind}, answers)


if __name__ == "__main__":
    main()
