"""optc through its public engine: ``ARTIFACT THREADS``."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any

import numpy as np
from serving import scoring, serve

import optc
from optc import registry
from optc.artifact.artifact import Artifact
from optc.proof.reference.teacher_forcing import SingleSequence, window_logits
from optc.runtime.executable.executable import Executable


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

    @cached_property
    def executable(self) -> Executable:
        """The engine's step, in pools of its own."""
        artifact = Artifact.open(self.folder, "size")
        entry = artifact.engine()
        return registry.step_backend(entry.backend).load(
            artifact.engine_folder(entry), entry.spec, entry.data, self.threads
        )

    def logits(self, tokens: list[int]) -> Any:
        """Logits [S, V] of one prompt, as gates compute them."""
        sequence = SingleSequence(self.executable, len(tokens))
        parts = window_logits(sequence, np.asarray(tokens, np.int32))
        return np.concatenate([part.copy() for _, part in parts])


def main() -> None:
    peer = Optc(sys.argv[1], int(sys.argv[2]))
    operations = {"prefill": peer.prefill, "decode": peer.decode, **scoring(peer.logits)}
    serve(operations, {"name": "optc", "version": optc.__version__})


if __name__ == "__main__":
    main()
