"""The loop every worker runs: one JSON request a line on stdin, one JSON answer a line on stdout.

Workers run inside the peer's own environment, so this file needs the standard library only.
Operations, all on token ids:

    prefill     {"tokens": [...]}                     -> {"seconds": s}
    decode      {"prompts": [[...], ...], "new": n}   -> {"seconds": s} for n more tokens of each
                prompt, together, prompts not counted
    perplexity  {"windows": [[...], ...]}             -> {"nll": sum in nats, "tokens": count}
    logits      {"tokens": [...], "file": path}       -> {"rows": count}; float32 [S, V] in the file
    memory      {}                                    -> {"peak_rss": bytes}
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

Operation = Callable[[dict[str, Any]], dict[str, Any]]


def peak_rss_bytes() -> int:
    """Largest resident set of this process so far, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def take_stdout() -> TextIO:
    """The stream of answers; from here on, anything that a peer prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def serve(
    operations: dict[str, Operation], about: dict[str, Any], answers: TextIO | None = None
) -> None:
    """Answer requests until stdin closes, on ``answers`` if stdout was taken before."""
    answers = answers or take_stdout()
    print(json.dumps({"ready": about}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        name = request.pop("op")
        if name == "memory":
            answer: dict[str, Any] = {"peak_rss": peak_rss_bytes()}
        else:
            answer = operations[name](request)
        print(json.dumps(answer), file=answers)


def scoring(logits_of: Callable[[list[int]], Any]) -> dict[str, Operation]:
    """The operations ``perplexity`` and ``logits`` of a peer that gives logits [S, V] of S tokens,
    with the activations and the KV that it really runs."""

    def perplexity(request: dict[str, Any]) -> dict[str, Any]:
        total, count = 0.0, 0
        for window in request["windows"]:
            total += negative_log_likelihood(logits_of(window)[:-1], window[1:])
            count += len(window) - 1
        return {"nll": total, "tokens": count}

    def logits(request: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        found = np.asarray(logits_of(request["tokens"]), dtype=np.float32)
        if len(found) != len(request["tokens"]):
            raise RuntimeError(f"logits of {len(found)} rows for {len(request['tokens'])} tokens")
        np.save(request["file"], found)
        return {"rows": len(found)}

    return {"perplexity": perplexity, "logits": logits}


def negative_log_likelihood(logits: Any, targets: Any) -> float:
    """Sum over rows of -log softmax(logits)[target]; logits [T, V] float, targets [T]."""
    import numpy as np

    rows = np.asarray(logits, dtype=np.float64)
    peak = rows.max(axis=-1, keepdims=True)
    total = np.log(np.exp(rows - peak).sum(axis=-1)) + peak[:, 0]
    return float((total - rows[np.arange(len(rows)), np.asarray(targets)]).sum())
