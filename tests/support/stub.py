"""A backend whose engine is the toy model, and a tiny Hugging Face folder to compile with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx_ir as ir

from optc.artifact.files import EngineFiles
from optc.artifact.manifest import EngineEntry
from optc.backend import NATIVE, BuildOptions, EngineBuild, Support
from optc.runtime.executable.executable import Executable, StepInterface
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import Target
from tests.runtime.support.texts import byte_level
from tests.runtime.support.toy import ToyExecutable, toy_spec

#: Ids of `byte_level`, rounded up.
VOCAB = 264


class StubBackend:
    """Implements `optc.backend.Backend` without a compiler."""

    weight_files = frozenset({"weights.bin"})

    def __init__(self, name: str = "stub", preference: int = 0) -> None:
        self.name = name
        self.preference = preference
        self.built: list[tuple[Target, BuildOptions]] = []
        self.reason = ""
        self.lacking = ""
        self.computes_in = "float32"

    def lacks(self, target: Target) -> str:
        return self.lacking

    def fetch(self, target: Target) -> str:
        return f"fetched for {target.name}"

    def available(self) -> str:
        return self.reason

    def takes(self, target: Target) -> str:
        return ""

    def supports(self, node: ir.Node, target: Target) -> Support:
        return NATIVE

    def kv_pools(self, dtype: str, target: Target) -> Support:
        return NATIVE

    def weight_layout(self, target: Target) -> str:
        return f"{self.name} {target.kind}"

    def check(self, engine: EngineEntry, files: EngineFiles) -> None:
        files.entry("engine.bin")

    def can_load(self, engine: EngineEntry, machine: Machine) -> str:
        return machine.misfit(engine.target)

    def features_used(self, engine: EngineEntry) -> tuple[str, ...]:
        return tuple(engine.data.get("features", ()))

    def build(
        self, model: ir.Model, target: Target, workdir: Path, options: BuildOptions
    ) -> EngineBuild:
        self.built.append((target, options))
        files = ["engine.bin"]
        (workdir / "engine.bin").write_bytes(b"engine")
        if options.shared is None:
            files.append("weights.bin")
            (workdir / "weights.bin").write_bytes(bytes(4096))
        return EngineBuild(
            tuple(files),
            toy_spec(max_context=options.max_context, vocab=VOCAB),
            {},
            {"nodes": len(list(model.graph)), "features": list(target.features)},
            {"made": "up"},
            weight_bytes=0 if options.shared else 4096,
            computes_in=self.computes_in,
        )

    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        assert (folder / "engine.bin").read_bytes() == b"engine"
        return ToyExecutable(spec)


class AheadOfTime(StubBackend):
    """Compiles for CUDA only, cannot share weights, and leaves a lowered model behind."""

    def takes(self, target: Target) -> str:
        return "" if target.kind == "cuda" else "it compiles for CUDA targets"

    def weight_layout(self, target: Target) -> str:
        return ""

    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        return ToyExecutable(spec)

    def build(
        self, model: ir.Model, target: Target, workdir: Path, options: BuildOptions
    ) -> EngineBuild:
        made = super().build(model, target, workdir, options)
        (workdir / "engine.bin").write_bytes(b"engine for " + target.arch.encode())
        if options.scratch is None:  # a draft is not judged
            return made
        lowered = options.scratch / "lowered.onnx"
        lowered.write_bytes(b"lowered")
        return EngineBuild(made.files, made.spec, {}, {}, weight_bytes=4096, lowered_onnx=lowered)


class Runner(StubBackend):
    """Runs lowered models as well."""

    def open_lowered(self, model: Path, spec: StepInterface, threads: int) -> Executable:
        assert model.read_bytes() == b"lowered"
        return ToyExecutable(spec)


def write_tiny_model(
    folder: Path, layers: int = 1, weight_std: float = 0.02, vocab: int = VOCAB
) -> Path:
    """A llama with seeded random weights and a byte-level tokenizer with BOS."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        initializer_range=weight_std,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    byte_level(bos=True).save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": "{{ bos_token }}{{ messages[0].content }}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
