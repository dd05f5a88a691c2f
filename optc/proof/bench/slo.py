"""Service level objectives: bounds on the latencies of each request.

Goodput is what a server does within them: the share of requests that meet every bound, and their
number per second (compare Zhong et al., 2024, DistServe).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from optc.errors import InputError, OptcError
from optc.runtime.requests.request_metrics import RequestMetrics

#: Share of the requests that has to meet the objectives at a rate that is called served
#: (Zhong et al., 2024).
ATTAINED = 0.9
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Slo:
    """Bounds in seconds; None bounds nothing.

    Attributes:
        ttft: On the time to first token.
        tpot: On the mean time per output token after the first.
        e2e: On the time from arrival to the end.
        itl: On every gap between two tokens.
    """

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None
    itl: float | None = None

    def met(self, request: RequestMetrics) -> bool:
        """True if a request that ended stayed within every bound. One without a first token does
        not; one with a single token has no TPOT to bound."""
        if request.ttft_s is None:
            return False
        longest_gap = max(request.itl_s, default=None)
        pairs = (
            (self.ttft, request.ttft_s),
            (self.tpot, request.tpot_s),
            (self.e2e, request.e2e_s),
            (self.itl, longest_gap),
        )
        return all(bound is None or seconds is None or seconds <= bound for bound, seconds in pairs)

    def to_json(self) -> dict[str, float | None]:
        """``ttft_ms``, ``tpot_ms``, ``e2e_ms`` and ``itl_ms``."""
        bounds: dict[str, float | None] = {f.name: getattr(self, f.name) for f in fields(self)}
        return {f"{k}_ms": None if v is None else 1000 * v for k, v in bounds.items()}


class ObjectivesError(OptcError):
    """Not one request met the objectives.

    Args:
        slo: The objectives.
        figures: Of the run (`optc.proof.bench.summary`): what was measured is set against each
            bound.
        details: All values of the command, for the JSON object.
        where: The option that states them.
    """

    kind = "objectives"
    exit_code = 4

    def __init__(
        self,
        slo: Slo,
        figures: Mapping[str, Any],
        details: Mapping[str, Any],
        where: str = "--slo",
    ) -> None:
        bounds = {key: bound for key, bound in slo.to_json().items() if bound is not None}
        known = {key: figures[key]["p50"] for key in bounds if figures[key]["p50"] is not None}
        missed = {key: value for key, value in known.items() if value > bounds[key]}
        found = [
            f"the median {key.removesuffix('_ms')} is {value:.4g} ms, {bounds[key]:.4g} ms are "
            "allowed"
            for key, value in missed.items()
        ]
        if known and not missed:
            found = ["at the median each one is met, but never all at once"]
        names = " and ".join(key.removesuffix("_ms") for key in missed or bounds)
        reason = f": {'; '.join(found)}" if found else ""
        super().__init__(
            f"not one request meets the objectives{reason}",
            where=where,
            hint=f"allow more {names}, or send fewer or shorter requests",
        )
        self.details = dict(details)


def goodput_of(
    slo: Slo, served: Sequence[RequestMetrics], failed: int, seconds: float
) -> dict[str, Any]:
    """``slo``, the ``share`` of all requests that met it, and ``requests_per_s`` of those."""
    met = sum(map(slo.met, served))
    return {
        "slo": slo.to_json(),
        "share": met / (len(served) + failed),
        "requests_per_s": met / seconds,
    }


def shortfall(share: float) -> list[str]:
    """A warning where fewer requests than `ATTAINED` meet the objectives; else nothing."""
    if share >= ATTAINED:
        return []
    return [f"{share:.1%} of the requests meet the objectives, fewer than {ATTAINED:.0%}"]


def parse_slo(text: str) -> Slo:
    """The objectives that ``text`` states: ``ttft=200ms,tpot=50ms``, ``e2e=2s``.

    Raises:
        InputError: It states none, or something else.
    """
    names = [field.name for field in fields(Slo)]
    bounds: dict[str, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*=\s*(\d+(?:\.\d+)?)\s*(us|ms|s)\s*", part)
        if not match or match[1] not in names or match[1] in bounds:
            raise InputError(
                f"{part!r} is no objective",
                where="--slo",
                hint=f"each of {', '.join(names)} once, for example ttft=200ms,tpot=50ms",
            )
        bounds[match[1]] = float(match[2]) * _UNITS[match[3]]
    return Slo(**bounds)
