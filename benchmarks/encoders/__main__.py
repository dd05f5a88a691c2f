"""Measure a sentence encoder beside ONNX Runtime, OpenVINO and torch.compile in one run.

    python -m benchmarks.encoders FOLDER [--workdir DIR] [--rounds 5] [--only TEXT]…
                                  [--sentences 2000] [--threads N] [--json FILE]

FOLDER is one of sentence-transformers. Every engine embeds the same token ids, padded behind the
tokens: tokenizing is the same for all, and not measured. First their vectors of the sentences (of
the text that ships with optc) are compared with the module's in PyTorch float32. Then all are
timed in turns: one text a call, over 32 texts of different lengths, and those 32 in one call.
Figures are medians over rounds, milliseconds a text. An engine that cannot be made or started is
listed with its reason. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from benchmarks.encoders.models import Maker
from benchmarks.encoders.quality import quality
from benchmarks.encoders.rows import Rows, open_rows, table
from benchmarks.encoders.workers.encoder_worker import padded
from benchmarks.peers.measuring import Worker
from optc.compiling.tensors.sentences import sentences
from optc.importer.tensors.encoder import import_encoder

_WORKER = Path(__file__).parent / "workers" / "encoder_worker.py"
_HEAD = ("engine", "ms a text, alone", "ms a text of 32", "cosine, mean", "recall of 10")
#: Sentences that static quantization is calibrated by.
_CALIBRATION = 300
#: Texts that are timed.
_TEXTS = 32
#: Calls of a turn with all of them.
_CALLS = 3


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.encoders", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workdir", type=Path, default=Path(".encoders"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", help="rows whose label contains TEXT")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    return parser.parse_args(given)


def token_ids(folder: Path, count: int) -> list[list[int]]:
    """Token ids of so many sentences, cut as the model's texts are."""
    reader = tokenizers.Tokenizer.from_str(import_encoder(folder).tokenizer)
    reader.no_padding()
    return [one.ids for one in reader.encode_batch(sentences(count))]


def reference_vectors(folder: Path, texts: list[list[int]]) -> Any:
    """Vectors of the module in PyTorch float32."""
    run = import_encoder(folder).reference
    if run is None:
        raise SystemExit(f"{folder} has no reference")
    parts = [run(padded(texts[i : i + _TEXTS]))["embeddings"] for i in range(0, len(texts), _TEXTS)]
    return np.concatenate(parts)


def timed_texts(texts: list[list[int]]) -> list[list[int]]:
    """Texts of all lengths, evenly spaced over the sorted ones."""
    order = sorted(texts, key=len)
    step = max(1, len(order) // _TEXTS)
    return order[::step][:_TEXTS]


def measure_round(rows: Rows, texts: list[list[int]]) -> None:
    """One round: each text alone, then all together, engines one after the other for each."""
    alone = dict.fromkeys(rows, 0.0)
    for text in texts:
        for label, (worker, _) in rows.items():
            alone[label] += worker.ask("time", texts=[text], calls=1)["seconds"]
    for label, (worker, figures) in rows.items():
        figures["alone"].append(1e3 * alone[label] / len(texts))
        seconds = worker.ask("time", texts=texts, calls=_CALLS)["seconds"]
        figures["together"].append(1e3 * seconds / _CALLS / len(texts))


def main() -> None:
    """Make, compare and time."""
    asked = arguments()
    texts = token_ids(asked.folder, asked.sentences)
    samples = [padded([text]) for text in texts[:_CALIBRATION]]
    maker = Maker(asked.folder, asked.workdir, asked.threads, _WORKER, samples)
    wanted, chosen = reference_vectors(asked.folder, texts), timed_texts(texts)
    with ExitStack() as stack, tempfile.TemporaryDirectory() as scratch:
        file = str(Path(scratch) / "vectors.npy")

        def figures(worker: Worker) -> dict[str, Any]:
            worker.ask("embed", texts=texts, file=file)
            return {"alone": [], "together": [], **quality(np.load(file), wanted)}

        results, rows = open_rows(stack, maker.makers(), asked.only, figures)
        for _ in range(asked.rounds):
            measure_round(rows, chosen)
    times = {"alone": ".3f", "together": ".3f"}
    print(table(_HEAD, results, times, {"cosine_mean": ".5f", "recall_at_10": ".4f"}))
    if asked.json:
        asked.json.write_text(json.dumps({"threads": asked.threads, "rows": results}, indent=1))


if __name__ == "__main__":
    main()
