"""OpenVINO GenAI's continuous batching pipeline: ``MODEL_FOLDER THREADS``."""

from __future__ import annotations

import sys
import time
from functools import cached_property
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as og
from serving import scoring, serve


class OpenVino:
    """One pipeline with room for 16 sequences; float logits come from the plain model."""

    def __init__(self, folder: str, threads: int) -> None:
        self.folder, self.threads = folder, threads
        scheduler = og.SchedulerConfig()
        scheduler.cache_size = 1
        scheduler.enable_prefix_caching = False
        scheduler.max_num_batched_tokens = 2048
        self.pipeline = og.ContinuousBatchingPipeline(
            folder, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads}
        )

    def run(self, prompts: list[list[int]], new: int) -> tuple[float, float]:
        """Seconds until every sequence has its first token, and from there to the end."""
        config = og.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = new, True, False
        handles = [
            self.pipeline.add_request(i, ov.Tensor(np.asarray([prompt], dtype=np.int64)), config)
            for i, prompt in enumerate(prompts)
        ]
        seen = [0] * len(handles)
        begin, first = time.perf_counter(), 0.0
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            for i, handle in enumerate(handles):
                if handle.can_read():
                    seen[i] += sum(len(o.generated_ids) for o in handle.read().values())
            if not first and all(seen):
                first = time.perf_counter()
        return first - begin, time.perf_counter() - first

    def prefill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time one prompt up to its first token."""
        return {"seconds": self.run([request["tokens"]], 1)[0]}

    def decode(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time greedy decoding of several sequences together."""
        return {"seconds": self.run(request["prompts"], request["new"] + 1)[1]}

    @cached_property
    def plain(self) -> Any:
        """The model alone with the plugin's defaults: its numbers of activations and of KV."""
        compiled = ov.Core().compile_model(f"{self.folder}/openvino_model.xml", "CPU")
        self.inputs = {name for one in compiled.inputs for name in one.names}
        return compiled.create_infer_request()

    def logits(self, tokens: list[int]) -> Any:
        """Logits [S, V] of one prompt."""
        request = self.plain
        request.reset_state()
        ids = np.asarray([tokens], dtype=np.int64)
        inputs = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "position_ids": np.arange(len(tokens), dtype=np.int64)[None],
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
        given = {name: value for name, value in inputs.items() if name in self.inputs}
        return next(iter(request.infer(given).values()))[0]


def main() -> None:
    peer = OpenVino(sys.argv[1], int(sys.argv[2]))
    operations = {"prefill": peer.prefill, "decode": peer.decode, **scoring(peer.logits)}
    serve(operations, {"name": "OpenVINO GenAI", "version": og.get_version()})


if __name__ == "__main__":
    main()
