"""An artifact around the toy executable, and the backend that loads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from optc.artifact.artifact import Artifact
from optc.artifact.files import EngineFiles
from optc.artifact.manifest import EngineEntry, Manifest, Source, TokenizerEntry
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.artifact.writer import ArtifactWriter
from optc.runtime.executable.executable import Executable, StepInterface
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import Target
from tests.runtime.support.texts import byte_level
from tests.runtime.support.toy import SwappingToy, ToyExecutable, toy_spec

SPEC = toy_spec((0, 6), vocab=259, max_context=128)


class ToyBackend:
    """Loads `ToyExecutable` and remembers what it was asked for."""

    name = "toy"
    preference = 0
    weight_files = frozenset({"weights.bin"})

    def __init__(self) -> None:
        self.calls: list[tuple[Path, dict[str, Any], int]] = []
        self.loaded: list[ToyExecutable] = []

    def check(self, engine: EngineEntry, files: EngineFiles) -> None:
        files.entry("engine.bin")

    def can_load(self, engine: EngineEntry, machine: Machine) -> str:
        return machine.misfit(engine.target)

    def features_used(self, engine: EngineEntry) -> tuple[str, ...]:
        return engine.target.features

    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        self.calls.append((folder, data, threads))
        swaps = (folder / "weights.bin").exists()
        self.loaded.append(SwappingToy(spec, folder) if swaps else ToyExecutable(spec))
        return self.loaded[-1]


def write_artifact(
    output: Path,
    *,
    tokenizer: bool = True,
    roles: tuple[str, ...] = ("target",),
    vocab: int = SPEC.vocab_size,
    special: str = "<s>",
    spec: StepInterface = SPEC,
    chat_template: str = "{{ bos_token }}{{ messages[0].content }}",
    targets: tuple[Target, ...] = (Target("any", "cpu"),),
    generation: Mapping[str, Any] | None = None,
    weights: str = "",
    code: bytes = b"toy",
) -> Artifact:
    """An artifact whose engines are the toy, with a byte-level tokenizer that adds no BOS itself.

    The tokenizer's first token is ``special``. With several ``targets`` there is an engine of each
    role for every one of them. With ``weights``, a seed in digits, they are swapped.
    """
    names = {
        role if len(targets) == 1 else f"{role}-{target.name}": (role, target)
        for role in roles
        for target in targets
    }
    with ArtifactWriter(output) as writer:
        for name in names:
            folder = writer.subfolder(f"engines/{name}")
            (folder / "engine.bin").write_bytes(code)
            if weights:
                (folder / "weights.bin").write_text(weights)
        if tokenizer:
            folder = writer.subfolder("tokenizer")
            byte_level().save(str(folder / "tokenizer.json"))
            text = (folder / "tokenizer.json").read_text()
            (folder / "tokenizer.json").write_text(text.replace("<s>", special))
            (folder / "chat_template.jinja").write_text(chat_template)
        engines = tuple(
            EngineEntry(
                name=name,
                role=role,
                backend="toy",
                target=target,
                requires={},
                interface=replace(spec, vocab_size=vocab),
                data={"seed": 0},
                folder=f"engines/{name}",
                files=("engine.bin", "weights.bin") if weights else ("engine.bin",),
            )
            for name, (role, target) in names.items()
        )
        files = ("tokenizer/tokenizer.json", "tokenizer/chat_template.jinja")
        entry = TokenizerEntry(
            files, 0, (1,), True, bos_token="<s>", eos_token="</s>", chat_template=files[1]
        )
        manifest = Manifest(
            task=TEXT_GENERATION,
            name="toy",
            source=Source("toy", "ab" * 32, "toy", {}),
            recipe={"name": "none"},
            pipeline="",
            passes=(),
            engines=engines,
            tokenizer=entry if tokenizer else None,
            files=writer.hashed_files(),
            gated=False,
            gates=(),
            packages={},
            generation=generation or {},
        )
        return writer.commit(manifest, {})
