"""optc against the peers of the same nominal bits, and which of them compare fairly.

A row of optc compares fairly with a peer's if it has at most 0.3 bits per weight fewer and, where
both are known, a perplexity that is no worse. Peers that do not are compared with all the same
and marked, so that nobody is left out for being ahead.
"""

from __future__ import annotations

import json
import math
import statistics
import struct
from pathlib import Path
from typing import Any

#: Columns in tokens per second.
RATES = ("prefill", "decode 1", "decode 8", "decode 16")
_FEWER_BITS = 0.3
#: What the quantizers of a peer are called in `benchmarks.quality_per_byte`.
_QUANTIZERS = {"openvino-genai": "openvino", "onnxruntime-genai": "onnxruntime"}


def parameter_count(model: Path) -> int:
    """Parameters of a Hugging Face folder, a tied head counted once (safetensors headers)."""
    total = 0
    for file in sorted(model.glob("*.safetensors")):
        with file.open("rb") as stream:
            header = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
        total += sum(math.prod(t["shape"]) for k, t in header.items() if k != "__metadata__")
    return total


def perplexities(results: Path | None) -> dict[str, float]:
    """Perplexity by label from the results of a run on a trained model."""
    if results is None:
        return {}
    rows = json.loads(results.read_text())["rows"]
    return {f"{r['peer']} {r['format']}": r["perplexity"] for r in rows if "perplexity" in r}


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each row of optc and each of `RATES`: the median over turns of its rate over the best
    peer's of the same bits in the same turn, with that peer's name, over all of them and over
    those that compare fairly."""
    found = []
    for own in (r for r in rows if r["peer"] == "optc"):
        peers = [r for r in rows if r["peer"] != "optc" and r["bits"] == own["bits"]]
        entry: dict[str, Any] = {"optc": own["format"]}
        for column in _measured(own):
            entry[column] = _against_best(own, peers, column)
            entry[f"{column}, fair"] = _against_best(
                own, [p for p in peers if _fair(own, p)], column
            )
        found.append(entry)
    return found


def divergences(results: Path, formats: dict[tuple[str, str], str]) -> dict[str, float]:
    """Mean KL by label, from `benchmarks.quality_per_byte`: of whole engines where the results are
    of those, and else of the weights alone.

    ``formats`` says, by peer and format, how the names of points of weights alone begin. Where
    several quantizers wrote a format, the best of them counts.
    """
    content = json.loads(results.read_text())
    if "reference" in content:  # whole engines, under their peers' own names
        return {f"{p['who']} {p['label']}": p["figures"]["kl_mean"]
                for p in content["points"] if p["numerics"] == "engine"}  # fmt: skip
    points = [p for p in content["points"] if p["numerics"] == "weights"]
    found: dict[str, float] = {}
    for (peer, name), start in formats.items():
        kls = [
            p["figures"]["kl_mean"]
            for p in points
            if p["who"] == _QUANTIZERS.get(peer, peer)
            and (p["label"] == start or p["label"].startswith((f"{start} ", f"{start},")))
        ]
        if kls:
            found[f"{peer} {name}"] = min(kls)
    return found


def at_equal_quality(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each row of optc with a KL and each of `RATES`: its rate over that of the best peer
    whose KL is no worse, as `ratios` does it."""
    found = []
    for own in (r for r in rows if r["peer"] == "optc" and "kl" in r):
        peers = [r for r in rows if r["peer"] != "optc" and r.get("kl", math.inf) <= own["kl"]]
        columns = {column: _against_best(own, peers, column) for column in _measured(own)}
        found.append({"optc": own["format"], "kl": own["kl"], **columns})
    return found


def _measured(row: dict[str, Any]) -> list[str]:
    return [column for column in RATES if column in row]


def _fair(own: dict[str, Any], peer: dict[str, Any]) -> bool:
    enough = own["bits_per_weight"] >= peer["bits_per_weight"] - _FEWER_BITS
    if "perplexity" in own and "perplexity" in peer:
        return enough and own["perplexity"] <= peer["perplexity"]
    return enough


def _against_best(own: dict[str, Any], peers: list[dict[str, Any]], column: str) -> str:
    if not peers:
        return "-"
    best = max(peers, key=lambda p: p[column])
    turns = zip(own["turns"][column], best["turns"][column], strict=True)
    ratio = statistics.median(ours / theirs for ours, theirs in turns)
    return f"{ratio:.2f} ({best['peer']} {best['format']})"
