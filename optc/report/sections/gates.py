"""Gates: what was measured, what is allowed, and how much of that was used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optc.report.components import Column, Section, numbers, paragraph, table
from optc.report.markup import Element, Node, element
from optc.report.numbers import number, percent
from optc.report.sections.subject import Subject

#: What a gate measures; one of another release is shown by its name alone.
_MEANINGS = {
    "kl_mean": "mean KL divergence from the float32 model, nats a token",
    "kl_p99": "KL divergence that one token in a hundred exceeds, nats",
    "kl_max": "largest KL divergence of a token, nats",
    "top1_agreement": "tokens with the same likeliest next token",
    "top5_agreement": "tokens whose likeliest next token is among the engine's five",
    "perplexity": "perplexity of the text",
    "perplexity_ratio": "perplexity over that of the float32 model",
    "common_continuation": "greedy tokens until the first that differs from float32, mean",
    "copy_nll_added": "what a copied text costs more than with the float32 model, nats a token",
    "answer_kl_mean": "mean KL divergence in answers of conversations, nats a token",
    "answer_kl_p99": "KL divergence that one token of an answer in a hundred exceeds, nats",
    "answer_top1_agreement": "tokens of answers with the same likeliest next token",
    "decision_flips": "decisions otherwise than float32's, which has a margin above 0.1 nats",
    "margin_factor": "share of float32's margin that 19 of 20 decisions keep",
    "prefill_speedup": "prefill, times the speed of float32 in ONNX Runtime",
    "decode_speedup": "decode, times the speed of float32 in ONNX Runtime",
}
#: Gates whose value is one where nothing is lost.
_IDEAL_OF_ONE = {
    *("top1_agreement", "top5_agreement", "perplexity_ratio"),
    *("answer_top1_agreement", "margin_factor"),
}
_VERDICTS = {True: "passed", False: "failed", None: "open"}


def gates(subject: Subject) -> Section:
    """Every gate of every engine."""
    found: Sequence[Mapping[str, Any]] = subject.report.get("gates", [])
    body: list[Node] = [paragraph(_summary(subject, found))]
    engines = dict.fromkeys(gate.get("engine") or "target" for gate in found)
    for engine in engines:
        own = [gate for gate in found if (gate.get("engine") or "target") == engine]
        caption = f"Engine {engine}" if len(engines) > 1 else ""
        body.append(_table(own, caption))
    return Section("gates", "Gates", tuple(body))


def _summary(subject: Subject, found: Sequence[Mapping[str, Any]]) -> str:
    if not subject.manifest.gated:
        return "The gates were switched off: nothing proves this artifact against its source."
    judged = [gate["passed"] for gate in found if gate["bound"] is not None]
    if not judged:
        return "No gate has a bound: what was measured is reported, and nothing is judged."
    parts = [
        f"{judged.count(verdict)} {_VERDICTS[verdict]}"
        for verdict in (True, False, None)
        if verdict in judged
    ]
    return (
        f"Of {len(judged)} gates with a bound: {', '.join(parts)}. A bar shows how much of "
        "what its bound allows was used; a gate without one is only reported."
    )


def _table(found: Sequence[Mapping[str, Any]], caption: str) -> Element:
    columns = [Column("gate"), *numbers("value", "bound"), Column("used"), Column("verdict")]
    return table([*columns, Column("remark")], map(_row, found), caption)


def _row(gate: Mapping[str, Any]) -> list[Node | None]:
    name, value, bound, passed = (gate[key] for key in ("name", "value", "bound", "passed"))
    meaning, digits = _MEANINGS.get(name), 5 if name in _IDEAL_OF_ONE else 3
    shown = [
        element("code", name),
        *([element("br"), element("small", meaning)] if meaning else []),
    ]
    used = used_share(name, value, bound, passed)
    lowered = "on the lowered ONNX" if gate["measured_on"] == "lowered-onnx" else ""
    remark = ": ".join(filter(None, (lowered, gate.get("reason") or "")))
    return [
        element("span", shown),
        number(value, digits),
        None if bound is None else number(bound, digits),
        None if used is None else _meter(used),
        _verdict(passed, bound),
        remark,
    ]


def used_share(
    name: str, value: float | None, bound: float | None, passed: bool | None
) -> float | None:
    """How much of what a bound allows was used: 1 at the bound, 0 where nothing was lost.

    Of gates whose best value is one it is the distance from one over the bound's; of other upper
    bounds the value over the bound, of lower ones the other way round. Which a bound is follows
    from the verdict.
    """
    if value is None or bound is None or passed is None or value <= 0 or bound <= 0:
        return None
    if name in _IDEAL_OF_ONE and bound != 1:
        return max((value - 1) / (bound - 1), 0.0)
    upper = (value <= bound) == passed
    return value / bound if upper else bound / value


def _meter(share: float) -> Element:
    bar = element("rect", width=100, height=8, class_="soft")
    used = element("rect", width=f"{100 * min(share, 1):.1f}", height=8, class_="fill")
    return element(
        "svg",
        element("title", f"{percent(share)} of the bound"),
        bar,
        used,
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{percent(share)} of the bound",
        class_="meter",
    )


def _verdict(passed: bool | None, bound: float | None) -> Element | None:
    if bound is None:
        return None
    sign = {True: "✓ ", False: "✗ ", None: ""}[passed]
    name = _VERDICTS[passed]
    return element("span", sign + name, class_=f"verdict {name}")
