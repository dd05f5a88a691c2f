"""The ceilings that ``optc bench`` measures beside everything else, where an engine has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optc.errors import UnavailableError

if TYPE_CHECKING:
    from optc.artifact.artifact import Artifact
    from optc.proof.bench.utilization import Instruments


def find_instruments(
    artifact: Artifact, threads: int | None, engine: str | None, warnings: list[str]
) -> Instruments | None:
    """The instruments; without any, throughput alone is still worth measuring."""
    from optc.proof.bench.utilization import open_instruments

    try:
        return open_instruments(artifact, threads, engine)
    except UnavailableError as error:
        warnings.append(f"no MBU and MFU: {error.render()}")
        return None


def found_ceilings(instruments: Instruments | None, warnings: list[str]) -> dict[str, Any] | None:
    """The ``ceilings`` of ``--json``, with a warning if something disturbed them."""
    from optc.proof.roofline.ceilings import ceilings_json, disturbances

    if instruments is None:
        return None
    warnings += disturbances(instruments.meter)
    return ceilings_json(instruments.meter)
