"""One engine of a sentence encoder: ``KIND PATH THREADS``, requests by `serving`.

Runs in the engine's own environment. Operations, on token ids, one list a text:

    embed  {"texts": [[...], ...], "file": path}  -> {"rows": count}; float32 [texts, D] in the file
    time   {"texts": [[...], ...], "calls": n}    -> {"seconds": s} for n calls with all texts
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "peers" / "workers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "encoders" / "workers"))

from openers import open_engine, timed
from serving import serve, take_stdout

#: Texts of a call of ``embed``.
_BATCH = 32


def padded(texts: list[list[int]]) -> dict[str, Any]:
    """Ids, mask and types [texts, tokens], padded behind the tokens."""
    longest = max(map(len, texts))
    ids = np.zeros((len(texts), longest), np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    mask = np.arange(longest) < np.array([len(text) for text in texts])[:, None]
    return {
        "input_ids": ids,
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": np.zeros_like(ids),
    }


def module_of(path: str) -> Any:
    """The folder's module, compiled for any batch and length; pooled as it says."""
    import torch

    from optc.importer.tensors.encoder import text_module

    plain, count = text_module(Path(path))
    module = torch.compile(plain, dynamic=True)

    def call(given: dict[str, Any]) -> Any:
        tensors = [torch.from_numpy(array) for array in [*given.values()][:count]]
        return module(*tensors)["embeddings"]

    return call


def main() -> None:
    """Open the engine and answer."""
    kind, path, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answers = take_stdout()
    run = open_engine(kind, path, threads, module_of)

    def embed(request: dict[str, Any]) -> dict[str, Any]:
        texts = request["texts"]
        parts = [run(padded(texts[i : i + _BATCH])) for i in range(0, len(texts), _BATCH)]
        np.save(request["file"], np.concatenate(parts).astype(np.float32))
        return {"rows": len(texts)}

    def time_calls(request: dict[str, Any]) -> dict[str, Any]:
        return timed(run, padded(request["texts"]), request["calls"])

    serve({"embed": embed, "time": time_calls}, {"name": kind}, answers)


if __name__ == "__main__":
    main()
