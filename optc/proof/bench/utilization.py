"""MBU and MFU: what a benchmark reached of the ceilings measured in the same run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from optc import registry
from optc.artifact.artifact import Artifact
from optc.errors import OptcError, UnavailableError
from optc.proof.bench.result import BenchResult
from optc.proof.roofline.ceilings import Ceiling, Meter, ceilings_json
from optc.proof.roofline.costs import StepCosts, step_work
from optc.proof.roofline.measurable import MeasurableBackend
from optc.runtime.executable.executable import StepInterface
from optc.system.hardware.cpu_caches import beyond_caches
from optc.system.hardware.target import usable_threads

#: A utilization above this is no measurement: timers and medians explain a few percent at most.
LIMIT = 1.05


class DisturbedError(OptcError):
    """A benchmark measured more than the machine can do.

    Args:
        name: MBU or MFU.
        value: What was measured.
        concurrency: Where.
        details: All figures, for the JSON object.
    """

    kind = "disturbed"
    exit_code = 4

    def __init__(self, name: str, value: float, concurrency: int, details: dict[str, Any]) -> None:
        super().__init__(
            f"{name} {value:.2f} is above what this machine can do: the ceilings were disturbed",
            where=f"bench, concurrency {concurrency}",
            hint="repeat on an idle machine",
        )
        self.details = details


@dataclass(frozen=True)
class Instruments:
    """The inputs of MBU and MFU: costs of a step, and the machine's ceilings."""

    costs: StepCosts
    meter: Meter


def open_instruments(
    artifact: Artifact, threads: int | None, engine: str | None = None
) -> Instruments:
    """The instruments for an artifact's engine on the calling thread.

    Args:
        artifact: Its files have been checked.
        threads: Threads of the engine; None is what this process may use.
        engine: Its name; None is the one that suits this machine best.

    Raises:
        UnavailableError: The backend or this build of the engine offers none.
    """
    entry = artifact.engine(engine)
    backend = measurable(entry.backend)
    costs = backend.step_costs(entry.data)
    meter = backend.open_meter(
        artifact.engine_folder(entry),
        entry.data,
        threads or usable_threads(),
        working_set(costs),
    )
    return Instruments(costs, meter)


def measurable(name: str) -> MeasurableBackend:
    """The backend called ``name``, if its engines can be measured.

    Raises:
        UnavailableError: They cannot.
    """
    backend = registry.backend(name)
    if not isinstance(backend, MeasurableBackend):
        others = (n for n in registry.backend_names() if n != name)
        able = [n for n in others if isinstance(registry.backend(n), MeasurableBackend)]
        raise UnavailableError(
            f"the backend {name} measures no ceilings",
            where="bench",
            hint=f"engines of {', '.join(able)} can be measured" if able else "",
        )
    return backend


def working_set(costs: StepCosts) -> int:
    """Bytes that the read kernels should go over for an engine: its weights, or enough of them
    that no cache holds them."""
    return min(int(costs.weight_bytes), beyond_caches())


def with_utilization(
    results: list[BenchResult], spec: StepInterface, instruments: Instruments
) -> list[BenchResult]:
    """The results with MBU (of decode) and MFU (of prefill) filled in.

    Raises:
        DisturbedError: One is above `LIMIT`.
    """
    costs, ceilings = instruments.costs, instruments.meter.ceilings()
    filled = [
        replace(
            result,
            mbu=decode_mbu(result, spec, costs, ceilings),
            mfu=prefill_mfu(result, spec, costs, ceilings),
        )
        for result in results
    ]
    details = {
        "results": [asdict(result) for result in filled],
        "ceilings": ceilings_json(instruments.meter),
    }
    for result in filled:
        for name, value in (("MBU", result.mbu), ("MFU", result.mfu)):
            if value is not None and value > LIMIT:
                raise DisturbedError(name, value, result.concurrency, details)
    return filled


def decode_mbu(
    result: BenchResult, spec: StepInterface, costs: StepCosts, ceilings: Mapping[str, Ceiling]
) -> float | None:
    """Bytes that decode had to read per second over the best read bandwidth.

    All steps of the counted time decode one row of each request, at the middle of its output.
    """
    if result.decode_tokens_per_s is None:
        return None
    sequences = min(result.concurrency, spec.max_sequences, spec.max_logit_rows)
    context = result.prompt_tokens + (result.output_tokens + 1) // 2
    work = step_work(spec, [1] * sequences, [context] * sequences, sequences)
    steps_per_s = result.decode_tokens_per_s / sequences
    return costs.bytes_of(work) * steps_per_s / ceilings["read"].best


def prefill_mfu(
    result: BenchResult, spec: StepInterface, costs: StepCosts, ceilings: Mapping[str, Ceiling]
) -> float | None:
    """Operations that prefill had to do per second over the peak of the weights' type.

    None if this CPU's peak of that type was not measured. One row of each prompt needs logits.
    """
    if costs.peak not in ceilings:
        return None
    work = step_work(spec, [result.prompt_tokens], [result.prompt_tokens], 1)
    work["1"] = 0.0
    prompts_per_s = result.prefill_tokens_per_s / result.prompt_tokens
    return costs.ops_of(work) * prompts_per_s / ceilings[costs.peak].best
