"""The step times of an artifact on this machine: measured once, then from the cache."""

from __future__ import annotations

from optc import registry
from optc.artifact.artifact import Artifact
from optc.proof.simulate.fit_service import fit_service
from optc.proof.simulate.measure import measure_step_times
from optc.proof.simulate.service import serve
from optc.proof.simulate.step_times import StepTimes
from optc.runtime.executable.executable import Executable
from optc.runtime.loader import artifact_tokenizer
from optc.runtime.speculative.planning.costs_cache import CostsCache
from optc.system.hardware.target import usable_threads
from optc.system.progress import Progress, no_progress

#: Another way to measure or to state them is another version.
_KIND = "step-times.v3"


def artifact_step_times(
    artifact: Artifact,
    threads: int | None = None,
    *,
    engine: str | None = None,
    cache: CostsCache | None = None,
    again: bool = False,
    progress: Progress = no_progress,
) -> StepTimes:
    """Step times of an artifact's engine; measuring takes some 15 seconds for 135 M parameters.

    Args:
        artifact: Its files have been checked.
        threads: Of the engine; None is what this process may use.
        engine: Name of one of its engines; None is the best for this machine.
        cache: Where they are kept; None is this user's cache.
        again: Measure anew, whatever is kept.
        progress: Told where measuring stands.

    Raises:
        InputError: It has no engine of that name.
        UnavailableError: This machine cannot load the engine.
    """
    cache, count = cache or CostsCache(), threads or usable_threads()
    entry = artifact.engine(engine)
    key = f"{artifact.digest}/{entry.name}"
    kept = None if again else cache.read(_KIND, key, count)
    if kept is not None:
        return StepTimes.from_json(kept)

    def opened() -> Executable:
        backend = registry.step_backend(entry.backend)
        return backend.load(artifact.engine_folder(entry), entry.spec, entry.data, count)

    executable = opened()
    try:
        alone = measure_step_times(executable, progress=progress)
    finally:
        executable.close()
    found = fit_service(alone, serve(opened, artifact_tokenizer(artifact)))
    cache.write(_KIND, key, count, found.to_json())
    return found
