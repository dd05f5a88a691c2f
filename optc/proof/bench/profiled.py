"""Profiles of an artifact's engine: its profiler and instruments, opened together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from optc.artifact.artifact import Artifact
from optc.artifact.choose import Choice
from optc.proof.bench.profile import ROUNDS, Shape, profile, shapes
from optc.proof.bench.utilization import Instruments, measurable, open_instruments
from optc.proof.roofline.measurable import Profiler
from optc.system.hardware.target import usable_threads
from optc.system.progress import Progress, no_progress


@dataclass(frozen=True)
class OpenProfile:
    """An engine that can be profiled.

    Attributes:
        choice: The engine, and why no other.
        profiler: Of its kernels.
        instruments: Costs of its steps, and the machine's ceilings.
    """

    choice: Choice
    profiler: Profiler
    instruments: Instruments

    def shapes(self, prompt_tokens: int, concurrency: Sequence[int]) -> list[Shape]:
        """As `optc.proof.bench.profile.shapes`."""
        return shapes(self.choice.entry.spec, prompt_tokens, concurrency)

    def measure(
        self, wanted: Sequence[Shape], rounds: int = ROUNDS, progress: Progress = no_progress
    ) -> list[dict[str, Any]]:
        """As `optc.proof.bench.profile.profile`."""
        spec = self.choice.entry.spec
        return profile(self.profiler, spec, self.instruments, wanted, rounds, progress)


@contextmanager
def open_profile(
    artifact: Artifact, engine: str | None = None, threads: int | None = None
) -> Iterator[OpenProfile]:
    """Open the profiler of an artifact's engine.

    Args:
        artifact: Its files have been checked.
        engine: Its name; None is the one that suits this machine best.
        threads: None is what this process may use.

    Raises:
        InputError: There is no engine of that name.
        UnavailableError: It cannot be loaded or measured here.
    """
    choice = artifact.choose(name=engine)
    entry, count = choice.entry, threads or usable_threads()
    profiler = measurable(entry.backend).open_profiler(
        artifact.engine_folder(entry), entry.spec, entry.data, count
    )
    try:
        yield OpenProfile(choice, profiler, open_instruments(artifact, count, engine))
    finally:
        profiler.close()
