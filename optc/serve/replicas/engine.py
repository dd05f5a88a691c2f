"""`ReplicatedEngine`: an `optc.Engine` whose requests are computed by replicas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from optc.artifact.artifact import Artifact
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.errors import InputError
from optc.runtime.engine import Engine
from optc.runtime.kv_events.events import StepLog
from optc.runtime.loader import artifact_tokenizer, load, model_defaults
from optc.runtime.settings import ServeSettings
from optc.runtime.text.tokenizer import Tokenizer
from optc.serve.replicas.wire import Replicas
from optc.serve.replicas.worker import ReplicatedWorker


class ReplicatedEngine(Engine):
    """Encodes prompts, compiles grammars and keeps finished answers here, and leaves the rest to
    replicas.

    Args:
        worker: Asks the replicas. It is closed with the engine.
        settings: How it serves; ``max_waiting`` holds for each replica.
        tokenizer: For prompts and results as text; without it prompts are token ids.
        eos_token_ids: Tokens that end a text.
        defaults: Values of `SamplingParams` that hold where a request states none.
    """

    def __init__(
        self,
        worker: ReplicatedWorker,
        settings: ServeSettings,
        *,
        tokenizer: Tokenizer | None = None,
        eos_token_ids: tuple[int, ...] = (),
        defaults: dict[str, Any] | None = None,
    ) -> None:
        info = worker.described.info
        self._begin_with(worker.works, settings, tokenizer, eos_token_ids, info, defaults)

    def load_adapter(self, name: str, folder: str | Path) -> None:
        """Do nothing for an adapter that the replicas were started with.

        Raises:
            InputError: It is another one.
        """
        if name not in self.adapters:
            raise InputError(
                f"the replicas have no adapter {name!r}",
                where="load_adapter",
                hint="give it when they are started",
            )


def open_artifact(path: Path, settings: ServeSettings, log: StepLog) -> Engine:
    """The engine of a replica.

    Raises:
        OptcError: As of `optc.load`.
    """
    return load(path, settings, log=log)


def replicated(
    path: Path, settings: ServeSettings, start: Callable[[], Replicas]
) -> ReplicatedEngine:
    """An artifact that replicas serve.

    Args:
        path: Its folder. Only the tokenizer and the manifest are read here.
        settings: How it serves.
        start: Starts the replicas; not called where the artifact is none.

    Raises:
        ArtifactError: Not an artifact, or damaged.
        InputError: It writes no text.
        OptcError: No replica is to be had.
    """
    artifact = Artifact.open(path, "size")
    if artifact.manifest.task.face != TEXT_GENERATION.face:
        raise InputError(
            f"{str(path)!r} writes no text",
            where="replicas",
            hint="serve it without replicas",
        )
    tokenizer = artifact.manifest.tokenizer
    reader = artifact_tokenizer(artifact)
    defaults = model_defaults(artifact) if settings.generation_defaults else {}
    worker = ReplicatedWorker(start(), settings.max_waiting)
    return ReplicatedEngine(
        worker,
        settings,
        tokenizer=reader,
        eos_token_ids=tuple(tokenizer.eos_token_ids) if tokenizer else (),
        defaults=dict(defaults),
    )
