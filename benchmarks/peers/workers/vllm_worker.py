"""vLLM's CPU build in this process: ``MODEL_FOLDER THREADS``."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
from serving import scoring, serve, take_stdout

ANSWERS = take_stdout()  # it prints as it is imported

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": f"0-{int(sys.argv[2]) - 1}",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
import vllm  # noqa: E402 - it reads the settings

CONTEXT = 1024


class Vllm:
    """One engine; prompts repeat over rounds, so that it caches no prefixes."""

    def __init__(self, folder: str) -> None:
        self.engine = vllm.LLM(
            folder, dtype="bfloat16", max_model_len=CONTEXT, max_num_seqs=16,
            enable_prefix_caching=False, enforce_eager=False, disable_log_stats=True,
        )  # fmt: skip
        self.rows: list[torch.Tensor] = []

    def generate(self, prompts: list[list[int]], new: int, **more: Any) -> float:
        """Seconds for ``new`` greedy tokens of each prompt."""
        params = vllm.SamplingParams(
            temperature=0.0, max_tokens=new, ignore_eos=True, detokenize=False, **more
        )
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        start = time.perf_counter()
        self.engine.generate(given, params, use_tqdm=False)
        return time.perf_counter() - start

    def prefill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time one prompt up to its first token."""
        return {"seconds": self.generate([request["tokens"]], 1)}

    def decode(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time greedy decoding of several sequences together: all less the prompts'."""
        first = self.generate(request["prompts"], 1)
        return {"seconds": self.generate(request["prompts"], request["new"] + 1) - first}

    def logits(self, tokens: list[int]) -> Any:
        """Logits [S, V] of one prompt: what its model computes to tell the prompt's own."""
        model = self.engine.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()
        compute, rows = model.compute_logits, []

        def kept(*args: Any, **kwargs: Any) -> Any:
            found = compute(*args, **kwargs)
            rows.append(found.float().clone())
            return found

        model.compute_logits = kept
        try:
            self.generate([tokens], 1, prompt_logprobs=0)
        finally:
            model.compute_logits = compute
        # the last row is computed to sample, the others for the prompt
        by_size = sorted(rows, key=len)
        return torch.cat([by_size[-1][: len(tokens) - 1], by_size[0][-1:]]).numpy()


def main() -> None:
    peer = Vllm(sys.argv[1])
    operations = {"prefill": peer.prefill, "decode": peer.decode, **scoring(peer.logits)}
    serve(operations, {"name": "vLLM", "version": vllm.__version__}, ANSWERS)


if __name__ == "__main__":
    main()
