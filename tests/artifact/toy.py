"""A small artifact made without a compile: an engine's files and data, and a tokenizer entry."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from optc.artifact.artifact import Artifact
from optc.artifact.digests import hashed_file, hashing_threads
from optc.artifact.manifest import (
    EngineEntry,
    FileEntry,
    GateEntry,
    Manifest,
    PassEntry,
    Source,
    TokenizerEntry,
    digest_of,
)
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.artifact.trust.names import BESIDE
from optc.artifact.writer import ArtifactWriter
from optc.runtime.executable.executable import KVGroup, LayerKV, StepInterface
from optc.system.hardware.target import Target, parse_target

WEIGHTS = bytes(range(256)) * 40
TOKENIZER = '{"model":{"type":"BPE","vocab":{},"merges":[]}}'
#: Beside the weights; their contents are nothing that could be loaded.
CODE = ("engine.so", "libtvm_runtime.so", "libtvm_runtime_extra.so")
#: As the TVM backend writes them.
DATA: dict[str, Any] = {
    "features": ["avx2"],
    "ffi": "0.1.15",
    "weights": [
        {"name": "a", "dtype": "float32", "shape": [16, 8], "offset": 0},
        {"name": "b", "dtype": "int8", "shape": [9728], "offset": 512},
    ],
}


def toy_spec() -> StepInterface:
    return StepInterface(
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
        interface=toy_spec(),
        data=DATA,
        folder=f"engines/{name}",
        files=("weights.bin", *CODE),
    )


def toy_manifest(files: tuple[FileEntry, ...], *engines: EngineEntry) -> Manifest:
    return Manifest(
        name="toy",
        task=TEXT_GENERATION,
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
    write_engine(writer)
    (writer.subfolder("tokenizer") / "tokenizer.json").write_text(TOKENIZER)


def write_engine(writer: ArtifactWriter) -> None:
    folder = writer.subfolder("engines/target")
    (folder / "weights.bin").write_bytes(WEIGHTS)
    for name in CODE:
        (folder / name).write_bytes(b"code")


def write_toy(output: Path, *engines: EngineEntry, force: bool = False) -> Artifact:
    with ArtifactWriter(output, force=force) as writer:
        write_files(writer)
        return writer.commit(toy_manifest(writer.hashed_files(), *engines), {"seconds": 1.5})


def forge(artifact: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change an artifact's manifest as someone does who knows how its digest is made."""
    path = artifact / "manifest.json"
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps({**value, "digest": digest_of(value)}))


def list_files(artifact: Path) -> None:
    """Put all files that there are into the manifest, with their sizes and digests."""

    def change(value: dict[str, Any]) -> None:
        texts = [artifact / name for name in ("manifest.json", "report.json", *BESIDE)]
        paths = [p for p in artifact.rglob("*") if p.is_file() and p not in texts]
        with hashing_threads() as threads:
            value["files"] = to_builtins([hashed_file(artifact, p, threads) for p in sorted(paths)])

    forge(artifact, change)
