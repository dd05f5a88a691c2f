"""Speed: a roofline with the steps of the engine, and where the time of each step goes."""

from __future__ import annotations

from collections.abc import Sequence

from optc.artifact.pages.charts.flame import Span, flame
from optc.artifact.pages.charts.roofline import Work, roofline
from optc.artifact.pages.components import Column, Section, figure, numbers, paragraph, table
from optc.artifact.pages.markup import Element, Node, element
from optc.artifact.pages.measured import KernelTime, Measured, Step
from optc.artifact.pages.numbers import count, number, percent, with_unit
from optc.artifact.pages.sections.subject import Subject

#: Kernels of a step that have a line of their own in its table.
_LINES = 12


def roof(subject: Subject) -> Section:
    """The roofline of what was measured, or why there is none."""
    if subject.measured is None:
        return Section("roofline", _ROOFLINE, (paragraph(subject.not_measured or _NONE),))
    return roof_of(subject.measured)


def roof_of(measured: Measured) -> Section:
    """The roofline of a profile."""
    title = _ROOFLINE
    if measured.ceilings is None:
        return Section("roofline", title, (paragraph(_NONE),))
    work = _work(measured.steps)
    if not work:
        return Section("roofline", title, (paragraph(_NONE),))
    caption = _ROOF
    ceilings = measured.ceilings
    chart = roofline("roofline-plot", title, caption, ceilings.read, ceilings.peaks, work)
    body = figure(chart, caption, _steps_table(measured))
    return Section("roofline", title, (body,), chart)


_ROOFLINE = "Roofline"
_ROOF = (
    "Left of the ridge memory bounds a step, right of it arithmetic; on the line the machine can "
    "do no more. Large points are whole steps, small ones their kernels; the lines were measured "
    "in the same run."
)
_NONE = "Nothing that moves or computes was measured."


def _work(steps: Sequence[Step]) -> list[Work]:
    """The steps that read and compute, and their kernels."""
    found = []
    for step in steps:
        parts = [(step.short, step.bytes, step.ops, step.ms, True)]
        parts += [
            (f"{step.short}: {one.label}", one.bytes, one.ops, one.ms, False)
            for one in step.kernels
        ]
        for label, moved, ops, ms, whole in parts:
            if moved > 0 and ops > 0 and ms > 0:
                rate = ops / ms / 1e6
                hint = f"{label}: {number(ops / moved)} op/B, {number(rate)} Gop/s"
                found.append(Work(label, ops / moved, rate, hint, whole))
    return found


def _steps_table(measured: Measured) -> Element:
    rows = [
        (
            step.short,
            number(step.ms),
            number(step.bytes / step.ms / 1e6),
            number(step.ops / step.ms / 1e6),
            percent(step.roof_ms / step.ms, 2),
        )
        for step in measured.steps
    ]
    columns = numbers("ms", "GB/s", "Gop/s", "of roof")
    return table([Column("step"), *columns], rows)


def step_times(subject: Subject) -> Section | None:
    """A bar of nested parts for each step; None where nothing was measured."""
    measured = subject.measured
    return None if measured is None or not measured.steps else step_times_of(measured)


def step_times_of(measured: Measured) -> Section:
    """A bar of nested parts for each step of a profile, of which there is one."""
    body: list[Node] = [paragraph(_STEPS)]
    charts = []
    for index, step in enumerate(measured.steps):
        caption = _step_caption(step)
        chart = flame(f"step-{index}", f"Time of a step: {step.label}", caption, _spans(step))
        charts.append(chart)
        body += [
            element("h3", f"{step.label}: {with_unit(step.ms, 'ms')}"),
            element("figure", element("figcaption", caption), chart, class_="wide"),
            element("details", element("summary", "Kernels as a table"), _kernels_table(step)),
        ]
    return Section("step-time", "Where the time of a step goes", tuple(body), charts[0])


_STEPS = (
    "The whole step above, then kinds of kernels, then each kernel, as wide as their time. The "
    "line at the foot of each is what the machine needs at best for the same bytes and operations: "
    "what is left beside it could be gained. What is around the kernels holds the noise of a busy "
    "machine, too."
)


def _step_caption(step: Step) -> str:
    outside = max(step.ms - step.kernel_ms, 0.0)
    return (
        f"{step.context:,} tokens of context; {percent(step.roof_ms / step.ms, 2)} of the step is "
        f"needed at best, {percent(outside / step.ms, 2)} is spent around the kernels."
    )


def _spans(step: Step) -> Span:
    """The step, kernels of one kind, and each kernel."""
    kinds: dict[str, list[KernelTime]] = {}
    for kernel in step.kernels:
        kinds.setdefault(_kind(kernel), []).append(kernel)
    ordered = sorted(kinds.items(), key=lambda item: -sum(k.ms for k in item[1]))
    parts = [_kind_span(kind, kernels) for kind, kernels in ordered]
    outside = step.ms - step.kernel_ms
    if outside > 0:
        parts.append(Span("around the kernels", outside, hint=with_unit(outside, "ms")))
    hint = with_unit(step.ms, "ms")
    return Span(f"{step.label}, {hint}", step.ms, step.roof_ms / step.ms, hint, tuple(parts))


def _kind_span(kind: str, kernels: Sequence[KernelTime]) -> Span:
    total = sum(kernel.ms for kernel in kernels)
    roof_ms = sum(kernel.roof_ms for kernel in kernels)
    parts = tuple(
        Span(
            kernel.label,
            kernel.ms,
            kernel.roof_ms / kernel.ms,
            f"{with_unit(kernel.ms, 'ms')}, {count(kernel.calls)} calls",
        )
        for kernel in sorted(kernels, key=lambda kernel: -kernel.ms)
        if kernel.ms > 0
    )
    return Span(kind, total, roof_ms / total if total > 0 else 0.0, with_unit(total, "ms"), parts)


def _kind(kernel: KernelTime) -> str:
    """Matmuls have a shape; of other kernels the name without its number."""
    return "matmuls" if kernel.shape else kernel.name.rstrip("0123456789").rstrip("_")


def _kernels_table(step: Step) -> Element:
    shown = sorted(step.kernels, key=lambda kernel: -kernel.ms)
    rows = [_kernel_row(kernel, step) for kernel in shown[:_LINES]]
    if rest := shown[_LINES:]:
        total = sum(kernel.ms for kernel in rest)
        calls = count(sum(kernel.calls for kernel in rest))
        share = percent(total / step.ms, 2)
        rows.append((f"{len(rest)} others", calls, number(total), share, "", "", ""))
    columns = numbers("calls", "ms", "of the step", "GB/s", "Gop/s", "of its roof")
    return table([Column("kernel", "code"), *columns], rows)


def _kernel_row(kernel: KernelTime, step: Step) -> tuple[str, ...]:
    def rate(amount: float) -> str:
        return number(amount / kernel.ms / 1e6) if kernel.ms > 0 and amount > 0 else ""

    reached = percent(kernel.roof_ms / kernel.ms, 2) if kernel.ms > 0 and kernel.roof_ms else ""
    return (
        kernel.label,
        count(kernel.calls),
        number(kernel.ms),
        percent(kernel.ms / step.ms, 2),
        rate(kernel.bytes),
        rate(kernel.ops),
        reached,
    )
