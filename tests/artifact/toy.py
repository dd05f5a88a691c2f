"""A small artifact made without a compile: two files and a tokenizer entry."""

from __future__ import annotations

from pathlib import Path

from optc.artifact import (
    Artifact,
    ArtifactWriter,
    EngineEntry,
    FileEntry,
    GateEntry,
    Manifest,
    PassEntry,
    Source,
    TokenizerEntry,
)
from optc.runtime.executable import EngineSpec, KVGroup, LayerKV
from optc.target import Target, parse_target

WEIGHTS = bytes(range(256)) * 40


def toy_spec() -> EngineSpec:
    return EngineSpec(
        vocab_size=16,
        max_context=32,
        max_rows=8,
        max_sequences=4,
        max_logit_rows=4,
        block_multiple=16,
        batch_invariant=True,
        groups=(KVGroup(0, (0,)), KVGroup(8, (1,))),
        layers=(LayerKV(0, 1, 8, 8, "float32"), LayerKV(1, 1, 8, 8, "float32")),
    )


def toy_engine(name: str = "target", target: Target | None = None) -> EngineEntry:
    return EngineEntry(
        name=name,
        role="target",
        backend="tvm",
        target=target or parse_target("x86-64-v3"),
        requires={},
        spec=toy_spec(),
        data={"tensors": [1, 2]},
        folder=f"engines/{name}",
        files=("weights.bin",),
    )


def toy_manifest(files: tuple[FileEntry, ...], *engines: EngineEntry) -> Manifest:
    return Manifest(
        kind="language-model",
        name="toy",
        source=Source("toy", "ab" * 32, "llama", {"hidden_size": 8, "eps": 1e-5}),
        recipe={"name": "fp32"},
        pipeline="canonicalize,kv-cache",
        passes=(PassEntry("kv-cache", "kv-cache", 2, {"full": 2}),),
        engines=engines or (toy_engine(),),
        tokenizer=TokenizerEntry(("tokenizer/tokenizer.json",), 0, (1,), add_bos=True),
        files=files,
        gated=True,
        gates=(GateEntry("kl_mean", 1e-6, True), GateEntry("decode_speedup", None, None)),
        packages={"optc": "0.1.0"},
    )


def write_files(writer: ArtifactWriter) -> None:
    (writer.subfolder("engines/target") / "weights.bin").write_bytes(WEIGHTS)
    (writer.subfolder("tokenizer") / "tokenizer.json").write_text("{}")


def write_toy(output: Path, *engines: EngineEntry, force: bool = False) -> Artifact:
    with ArtifactWriter(output, force=force) as writer:
        write_files(writer)
        return writer.commit(toy_manifest(writer.hashed_files(), *engines), {"seconds": 1.5})
