"""Measuring `StepTimes` on a loaded engine: rounds in which all shapes take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optc.proof.simulate.step_times import Curve, Rows, StepTimes, group_shares
from optc.proof.simulate.stopwatch import time_steps
from optc.runtime.executable.executable import Executable, StepInterface
from optc.system.progress import Progress, no_progress

ROUNDS = 8
#: Memory for keys and values while measuring; long contexts of many sequences are left out.
_KV_BYTES = 512 << 20
_SHORT, _LONG = 32, 2048

Shape = tuple[Rows, ...]
#: Seconds of each of some shapes, every sequence wanting one row of logits.
TimeSteps = Callable[[Sequence[Shape]], list[float]]


def measure_step_times(
    executable: Executable,
    *,
    rounds: int = ROUNDS,
    progress: Progress = no_progress,
    clock: Callable[[], float] = time.perf_counter,
) -> StepTimes:
    """Steps of an engine that nobody else uses, on their own; its KV pools are replaced. What
    service adds is found by `optc.proof.simulate.fit_service`.

    Args:
        executable: The engine.
        rounds: In which all shapes take turns.
        progress: Told how many have been timed.
        clock: Seconds of a monotonic clock.
    """
    return fit(
        executable.spec,
        lambda shapes: time_steps(executable, shapes, rounds, progress, clock),
    )


def fit(spec: StepInterface, timed: TimeSteps) -> StepTimes:
    """The curves that explain measured steps, and how well they explain others."""
    plan = _Plan.of(spec)
    seconds = dict(zip(plan.shapes, timed(plan.shapes), strict=True))
    windows, shares = group_shares(spec)
    zero, one = Curve((0.0,), (0.0,)), Curve((0.0,), (1.0,))
    times = StepTimes(windows, shares, zero, zero, zero, zero, one, zero, 0.0)

    def seen(shape: Shape) -> float:
        return sum(times.pairs(new, length) for new, length in shape)

    def per_pair(near: Shape, far: Shape) -> float:
        more = seen(far) - seen(near)
        return max(0.0, (seconds[far] - seconds[near]) / more) if more > 0 else 0.0

    times = replace(
        times,
        chunk=_curve((n, per_pair(near, far)) for n, near, far in plan.chunks),
        token=_curve((n, per_pair(near, far)) for n, near, far in plan.decodes),
    )
    attention = times  # the other curves are what it does not explain
    body = _curve((n, seconds[all_] - attention.engine_s(all_, 1)) for n, all_ in plan.prefills)
    times = replace(times, body=body)
    with_body = times
    extra = _curve((n, seconds[near] - with_body.engine_s(near, n)) for n, near, _ in plan.decodes)
    times = replace(times, extra=extra)
    errors = [abs(times.engine_s(shape, len(shape)) / seconds[shape] - 1) for shape in plan.checks]
    return replace(times, error=sum(errors) / max(1, len(errors)))


@dataclass(frozen=True)
class _Plan:
    """The shapes that are measured.

    Attributes:
        prefills: Rows, and a step of so many from nothing.
        chunks: Rows, and steps of so many after little and after much.
        decodes: Sequences, and steps of one row of each at a short and at a long context.
        checks: Mixed steps, to see how well the curves do.
    """

    prefills: list[tuple[int, Shape]]
    chunks: list[tuple[int, Shape, Shape]]
    decodes: list[tuple[int, Shape, Shape]]
    checks: list[Shape]

    @property
    def shapes(self) -> list[Shape]:
        """All of them, each once."""
        found = [shape for _, shape in self.prefills]
        found += [shape for _, *both in (*self.chunks, *self.decodes) for shape in both]
        return list(dict.fromkeys(found + self.checks))

    @staticmethod
    def of(spec: StepInterface) -> _Plan:
        room = _KV_BYTES // max(1, spec.kv_bytes_per_token)
        longest = min(spec.max_context, _LONG, room)
        rows = [n for n in _doubling(spec.max_rows) if n <= spec.max_context]
        most = min(spec.max_sequences, spec.max_logit_rows, spec.max_rows)
        short = min(_SHORT, longest)
        decodes = []
        for count in _doubling(most):
            far = max(short, min(longest, room // count))
            decodes.append((count, _decode(count, short), _decode(count, far)))
        chunks: list[tuple[int, Shape, Shape]] = [
            (n, (Rows(n, n),), (Rows(n, longest),))
            for n in (2, 8, 32, 128, 512)
            if n <= rows[-1] and n < longest
        ]
        return _Plan([(n, (Rows(n, n),)) for n in rows], chunks, decodes, _checks(spec, longest))


def _checks(spec: StepInterface, longest: int) -> list[Shape]:
    """Steps as they are served: some decode at different lengths, another one's prompt goes on."""
    found = []
    for share in (4, 2):
        sequences = min(spec.max_sequences, spec.max_logit_rows) // share // 2
        rows = min(spec.max_rows - sequences, longest) // share
        if sequences and rows:
            lengths = np.linspace(min(_SHORT, longest), max(1, longest // 2), sequences)
            decodes = tuple(Rows(1, int(length)) for length in lengths)
            found.append((*decodes, Rows(rows, min(longest, 2 * rows))))
    return found


def _decode(count: int, length: int) -> Shape:
    return (Rows(1, length),) * count


def _doubling(limit: int) -> list[int]:
    """1, 2, 4, … and the limit."""
    return sorted({1 << k for k in range(limit.bit_length()) if 1 << k < limit} | {limit})


def _curve(points: Iterable[tuple[int, float]]) -> Curve:
    """A curve through points; zero everywhere without any."""
    found = list(points) or [(0, 0.0)]
    return Curve(tuple(float(x) for x, _ in found), tuple(y for _, y in found))
