"""A machine whose step times are known."""

from __future__ import annotations

from optc.proof.simulate.step_times import Curve, StepTimes


def line(start: float, slope: float = 0.0) -> Curve:
    """A straight line, as far as any test goes."""
    return Curve((0.0, 1e6), (start, start + 1e6 * slope))


def step_times(
    *, step: float = 0.0, row: float = 0.0, logits: float = 0.0, pair: float = 0.0, host: float = 0
) -> StepTimes:
    """Steps of full attention that cost so much each, a row, a row of logits, a pair, around."""
    return StepTimes(
        windows=(0,),
        shares=(1.0,),
        body=line(step, row),
        extra=line(0.0, logits),
        chunk=line(pair),
        token=line(pair),
        service=line(1.0),
        host=line(host),
        error=0.0,
    )
