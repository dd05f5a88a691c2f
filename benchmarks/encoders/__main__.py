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
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from benchmarks.encoders.models import Maker
from benchmarks.encoders.quality import quality
from benchmarks.encoders.workers.encoder_worker import padded
from benchmarks.peers.measuring import Worker
from benchmarks.peers.tools import FailedError
from optc.compiling.tensors.sentences import sentences
from optc.errors import OptcError
from optc.importer.tensors.encoder import import_encoder

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


def reference_vectors(maker: Maker, texts: list[list[int]]) -> Any:
    """Vectors of the module in PyTorch float32."""
    run = maker.reference()
    parts = [run(padded(texts[i : i + _TEXTS]))["embeddings"] for i in range(0, len(texts), _TEXTS)]
    return np.concatenate(parts)


def timed_texts(texts: list[list[int]]) -> list[list[int]]:
    """Texts of all lengths, evenly spaced over the sorted ones."""
    order = sorted(texts, key=len)
    step = max(1, len(order) // _TEXTS)
    return order[::step][:_TEXTS]


def measure_round(rows: dict[str, tuple[Worker, dict[str, Any]]], texts: list[list[int]]) -> None:
    """One round: each text alone, then all together, engines one after the other for each."""
    alone = dict.fromkeys(rows, 0.0)
    for text in texts:
        for label, (worker, _) in rows.items():
            alone[label] += worker.ask("time", texts=[text], calls=1)["seconds"]
    for label, (worker, figures) in rows.items():
        figures["alone"].append(1e3 * alone[label] / len(texts))
        seconds = worker.ask("time", texts=texts, calls=_CALLS)["seconds"]
        figures["together"].append(1e3 * seconds / _CALLS / len(texts))


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results as Markdown."""
    lines = [
        "| engine | ms a text, alone | ms a text of 32 | cosine, mean | recall of 10 |",
        "|---|---|---|---|---|",
    ]
    for label, found in results.items():
        if "reason" in found:
            lines.append(f"| {label} | {found['reason']} | | | |")
            continue
        alone, together = (statistics.median(found[name]) for name in ("alone", "together"))
        figures = f"{alone:.3f} | {together:.3f}"
        near = f"{found['cosine_mean']:.5f} | {found['recall_at_10']:.4f}"
        lines.append(f"| {label} | {figures} | {near} |")
    return "\n".join(lines)


def main() -> None:
    """Make, compare and time."""
    asked = arguments()
    texts = token_ids(asked.folder, asked.sentences)
    maker = Maker(asked.folder, asked.workdir, asked.threads, texts)
    wanted, chosen = reference_vectors(maker, texts), timed_texts(texts)
    results: dict[str, dict[str, Any]] = {}
    rows: dict[str, tuple[Worker, dict[str, Any]]] = {}
    with ExitStack() as stack, tempfile.TemporaryDirectory() as scratch:
        for label, make in maker.makers().items():
            if asked.only and not any(text in label for text in asked.only):
                continue
            file = Path(scratch) / "vectors.npy"
            try:
                worker = Worker(make())
                stack.callback(worker.close)
                worker.ask("embed", texts=texts, file=str(file))
            except (FailedError, OptcError, OSError, ValueError) as error:
                results[label] = {"reason": " ".join(str(error).split())[:200]}
                continue
            figures = {"alone": [], "together": [], **quality(np.load(file), wanted)}
            results[label] = figures
            rows[label] = (worker, figures)
            print(f"· {label}", file=sys.stderr)
        for _ in range(asked.rounds):
            measure_round(rows, chosen)
    print(table(results))
    if asked.json:
        asked.json.write_text(json.dumps({"threads": asked.threads, "rows": results}, indent=1))


if __name__ == "__main__":
    main()
