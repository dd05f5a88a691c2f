"""The cost of a trimmed vocabulary, before anything is quantized, and what it saves.

    python -m benchmarks.proof.vocab_trim MODEL [--min-counts 1,2,8] [--json FILE]

The tokens of MODEL that the calibration text of code uses so often stay. The beginnings of 40
held-out modules are scored by the float32 model with its own tokenizer, and by the model without
the other tokens with the trimmed one: loss in nats a character, in which respelled tokens count as
they do when the model reads and writes. Also how many tokens the held-out text then takes, and the
weights of embedding and head.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import tokenizers

from benchmarks.proof.tokens_per_pass import TEXT
from optc.compiling.vocabulary.trim_tokenizer import kept_ids, trimmed
from optc.importer.import_model import import_model
from optc.ir.pipeline import registry
from optc.ir.pipeline.entries import read_pipeline
from optc.ir.vocabulary import write_ids
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.text import read_documents
from optc.proof.reference.text_fit import token_losses
from optc.system.hardware.target import usable_threads

CALIBRATION = TEXT.with_name("code_calibration.jsonl")
DOCUMENTS = 40


def loss(
    model: ir.Model, tokenizer: tokenizers.Tokenizer, texts: Sequence[str], bos: int
) -> tuple[float, int]:
    """Nats a character of texts behind BOS, and their tokens."""
    reference = BlockwiseReference(model, usable_threads())
    total, tokens = 0.0, 0
    try:
        for text in texts:
            ids = [bos, *tokenizer.encode(text, add_special_tokens=False).ids]
            total += float(token_losses(reference, np.array([ids], np.int32)).sum())
            tokens += len(ids) - 1
    finally:
        reference.close()
    return total / sum(map(len, texts)), tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--min-counts", default="1,2,8")
    parser.add_argument("--characters", type=int, default=900)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    imported = import_model(arguments.model)
    read_pipeline(["canonicalize"], registry).run(imported.model)
    source = tokenizers.Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
    counts = Counter(
        one
        for text in read_documents(CALIBRATION)
        for one in source.encode(text, add_special_tokens=False).ids
    )
    texts = [text[: arguments.characters] for text in read_documents(TEXT)[:DOCUMENTS]]
    bos = imported.config["bos_token_id"]
    nats, tokens = loss(imported.model, source, texts, bos)
    rows = source.get_vocab_size()
    results: list[dict[str, Any]] = [
        {"min_count": 0, "kept": rows, "nats_a_character": nats, "tokens": tokens}
    ]
    print(json.dumps(results[0]), flush=True)
    for min_count in map(int, arguments.min_counts.split(",")):
        data = json.loads(source.to_str())
        kept = kept_ids(data, counts, min_count, [bos], str(arguments.model))
        after = tokenizers.Tokenizer.from_str(json.dumps(trimmed(data, kept, "")))
        model = imported.model.clone()
        with tempfile.TemporaryDirectory() as folder:
            write_ids(Path(folder), kept)
            read_pipeline([{"vocab-trim": {"folder": folder}}], registry).run(model)
            nats, tokens = loss(model, after, texts, kept.index(bos))
        facts = {"min_count": min_count, "kept": len(kept)}
        results.append({**facts, "nats_a_character": nats, "tokens": tokens})
        print(json.dumps(results[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
