"""An artifact around the toy executable, and the backend that loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optc.artifact import Artifact, ArtifactWriter, EngineEntry, Manifest, Source, TokenizerEntry
from optc.runtime.executable import EngineSpec, Executable
from optc.target import Target
from tests.runtime.texts import byte_level
from tests.runtime.toy import ToyExecutable, toy_spec

SPEC = toy_spec((0, 6), vocab=259, max_context=128)


class ToyBackend:
    """Loads `ToyExecutable` and remembers what it was asked for."""

    name = "toy"

    def __init__(self) -> None:
        self.calls: list[tuple[Path, dict[str, Any], int]] = []

    def load(
        self, folder: Path, spec: EngineSpec, data: dict[str, Any], threads: int
    ) -> Executable:
        self.calls.append((folder, data, threads))
        return ToyExecutable(spec)


def write_artifact(output: Path, *, tokenizer: bool = True) -> Artifact:
    """An artifact whose engine is the toy, with a byte-level tokenizer that adds no BOS itself."""
    with ArtifactWriter(output) as writer:
        (writer.subfolder("engines/target") / "engine.bin").write_bytes(b"toy")
        if tokenizer:
            folder = writer.subfolder("tokenizer")
            byte_level().save(str(folder / "tokenizer.json"))
            (folder / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}")
        engine = EngineEntry(
            name="target",
            role="target",
            backend="toy",
            target=Target("any", "cpu"),
            requires={},
            spec=SPEC,
            data={"seed": 0},
            folder="engines/target",
            files=("engine.bin",),
        )
        files = ("tokenizer/tokenizer.json", "tokenizer/chat_template.jinja")
        entry = TokenizerEntry(
            files, 0, (1,), True, bos_token="<s>", eos_token="</s>", chat_template=files[1]
        )
        manifest = Manifest(
            kind="language-model",
            name="toy",
            source=Source("toy", "ab" * 32, "toy", {}),
            recipe={"name": "none"},
            pipeline="",
            passes=(),
            engines=(engine,),
            tokenizer=entry if tokenizer else None,
            files=writer.hashed_files(),
            gated=False,
            gates=(),
            packages={},
        )
        return writer.commit(manifest, {})
