"""optc through its public engine: ``ARTIFACT THREADS``."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from serving import negative_log_likelihood, serve

import optc
from optc import registry
from optc.artifact import Artifact
from optc.reference.teacher_forcing import SingleSequence, window_logits


class Optc:
    """One engine; prompts are token ids."""

    def __init__(self, folder: str, threads: int) -> None:
        self.folder, self.threads = folder, threads
        # Prompts repeat over rounds: a prefix cache would answer them without computing.
        self.engine = optc.load(folder, threads=threads, kv_memory="1GiB", prefix_cache=False)

    def times(self, prompts: list[list[int]], new: int) -> list[list[float]]:
        """Seconds from arrival to each of ``new`` greedy tokens of each prompt."""
        params = optc.SamplingParams(max_tokens=new, temperature=0.0, ignore_eos=True)
        handles = [self.engine.submit(prompt, params) for prompt in prompts]
        metrics = [handle.result().metrics for handle in handles]
        begin = metrics[0].arrived_s
        return [[t - begin for t in m.token_times_s] for m in metrics]

    def prefill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time one prompt up to its first token."""
        return {"seconds": self.times([request["tokens"]], 1)[0][0]}

    def decode(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time greedy decoding of all sequences together, from when the last prompt is done.

        Prompts are computed in chunks beside the first ones' decoding, so that sequences are given
        more tokens than are timed: none ends before the last one has its own.
        """
        prompts, new = request["prompts"], request["new"]
        times = self.times(prompts, 1 + new + len(prompts))
        last = max(times, key=lambda t: t[0])
        begin, end = last[0], last[new]
        tokens = sum(sum(begin < x <= end for x in t) for t in times)
        return {"seconds": (end - begin) * new * len(times) / tokens}

    def perplexity(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sum the negative log-likelihood of windows."""
        artifact = Artifact.open(self.folder, "size")
        entry = artifact.engine()
        executable = registry.backend(entry.backend).load(
            artifact.engine_folder(entry), entry.spec, entry.data, self.threads
        )
        windows = [np.asarray(w, np.int32) for w in request["windows"]]
        sequence = SingleSequence(executable, max(map(len, windows)))
        total, count = 0.0, 0
        for window in windows:
            for first, logits in window_logits(sequence, window):
                targets = window[first + 1 : first + 1 + len(logits)]
                total += negative_log_likelihood(logits[: len(targets)], targets)
                count += len(targets)
        executable.close()
        return {"nll": total, "tokens": count}


def main() -> None:
    peer = Optc(sys.argv[1], int(sys.argv[2]))
    operations = {"prefill": peer.prefill, "decode": peer.decode, "perplexity": peer.perplexity}
    serve(operations, {"name": "optc", "version": optc.__version__})


if __name__ == "__main__":
    main()
