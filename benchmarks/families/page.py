"""docs/families.md from the survey's results."""

from __future__ import annotations

import textwrap

from optc.families.survey import ENCODER_HALF, STAGES, Family, Survey

_WIDTH = 100
_HEAD = """# Families

Which types of language models optc takes, of transformers {version}, and what was proved of each.
`python -m benchmarks.families --last "int8 gated" --table docs/families.md` makes this page, and
what `optc families` prints. Every type is a tiny random model with all kinds of its layers, saved
as people publish it. Nothing here depends on a type's name: passes recognize dataflow.

| stage | holds for | what it says |
|---|---|---|
"""
_MEANS = {
    "built": "a tiny model exists",
    "imported": "transformers' class is exported, and all weights are found in the checkpoint",
    "canonical": "the graph is in the dense form ([normal-form.md](normal-form.md))",
    "reference equal": "ONNX Runtime gives transformers' float32 logits within 1e-4",
    "planned": "TVM has code for every node of `fp32`",
    "tokens equal": "32 greedy tokens of TVM's float32 engine, of two prompts, are transformers'",
    "int8 gated": "`int8-fused` compiles; its KL is at most 1.2 of a fake quantization's",
}
_TABLE = """
## Types

KL of int8 is that of `int8-fused` to transformers' float32, in nats, mean over 1,152 tokens, and
in brackets how many times that of a fake quantization: transformers' own code in float32, with the
operands of every product rounded to int8 as the recipe does.

| type | proved | engines | KL of int8 | what stops it |
|---|---|---|---|---|
"""


def page(survey: Survey) -> str:
    """The page."""
    decoders = [family for family in survey.families if family.group != ENCODER_HALF]
    halves = [family.type for family in survey.families if family.group == ENCODER_HALF]
    stages = [f"| {name} | {survey.count(name)} | {_MEANS[name]} |" for name in STAGES]
    text = _HEAD.format(version=survey.transformers) + "\n".join(stages) + "\n"
    text += f"\nThere are {len(decoders)} decoders.\n" + _TABLE
    text += "\n".join(map(_row, decoders)) + "\n"
    text += "\n## Encoders and halves of encoder-decoders\n\n"
    listed = "Listed as causal by transformers, served by nobody as such: " + ", ".join(halves)
    return text + textwrap.fill(f"{listed}.", _WIDTH, break_on_hyphens=False) + "\n"


def _row(family: Family) -> str:
    loss = "" if family.int8_kl is None else f"{family.int8_kl:.1e} ({family.int8_ratio:.2f})"
    reason = family.reason.replace("|", "\\|").replace("<", "&lt;")
    cells = [f"`{family.type}`", family.proved, ", ".join(family.engines), loss, reason]
    return "| " + " | ".join(cells) + " |"
