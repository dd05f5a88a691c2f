"""Measures a generator beside the one of its source."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from optc.artifact.tasks.task import SPEED
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT
from optc.proof.gates.in_turns import speedup
from optc.proof.gates.measure import GateResult, judge
from optc.runtime.text_to_text.generator import GeneratedText, TextToTextGenerator
from optc.runtime.text_to_text.params import TextToTextOptions

#: Speed is the median over so many turns, with so many texts.
_TURNS, _TEXTS = 3, 4
_SPEEDUP = TEXT_TO_TEXT.of(SPEED)[0]


def measure_text_to_text(
    found: TextToTextGenerator,
    reference: TextToTextGenerator,
    baseline: TextToTextGenerator,
    texts: Sequence[str],
    bounds: Mapping[str, float | None],
    engine: str,
    how: TextToTextOptions,
) -> tuple[GateResult, ...]:
    """Verdicts of the task's measures, in order.

    Args:
        found: With the engine.
        reference: With the source's own outputs.
        baseline: With the float32 graphs in ONNX Runtime, whose speed is 1.
        texts: To read.
        bounds: Of the recipe.
        engine: Its name.
        how: Texts are written.
    """
    wanted = reference.generate(texts, **how)
    ours = found.generate(texts, **how)
    same = [a.tokens == b.tokens for a, b in zip(ours, wanted, strict=True)]
    values: dict[str, float | None] = {
        "token_agreement": _agreement(found, texts, wanted, how),
        "text_agreement": sum(same) / len(same),
    }
    if _SPEEDUP in bounds:
        values[_SPEEDUP] = speedup(
            lambda: found.generate(texts[:_TEXTS], **how),
            lambda: baseline.generate(texts[:_TEXTS], **how),
            _TURNS,
        )
    return tuple(
        dataclasses.replace(judge(name, values.get(name), bounds.get(name), ""), engine=engine)
        for name in TEXT_TO_TEXT.gates
    )


def _agreement(
    found: TextToTextGenerator,
    texts: Sequence[str],
    wanted: Sequence[GeneratedText],
    how: TextToTextOptions,
) -> float:
    """The share of the reference's tokens that the engine would have written, too; ends count."""
    agreed = count = 0
    for text, one in zip(texts, wanted, strict=True):
        likeliest = found.likeliest(text, one, **how)
        agreed += sum(a == b for a, b in zip(likeliest, one.tokens, strict=False))
        agreed += one.ended and likeliest[-1] in found.conventions.ends
        count += len(one.tokens) + one.ended
    return agreed / count
