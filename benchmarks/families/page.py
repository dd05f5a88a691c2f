"""docs/families.md from the survey's results."""

from __future__ import annotations

import textwrap

from optc.importer.families.survey import ENCODER_HALF, STAGES, Family, Survey
from optc.system.sources.kind import Kind
from optc.system.sources.kinds import OTHERS, WEIGHTS

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
_UNBUILT = """Where nothing is proved and the reason begins with "built", the survey made no
tiny model of the type: `optc plan MODEL` says whether it is taken."""
_TABLE = """
## Types

KL of int8 is that of `int8-fused` to transformers' float32, in nats, mean over 1,152 tokens, and
in brackets how many times that of a fake quantization: transformers' own code in float32, with the
operands of every product rounded to int8 as the recipe does.

| type | proved | engines | KL of int8 | what stops it |
|---|---|---|---|---|
"""
_OTHERS = """
## Other models, and what is no model
Folders of encoders over texts or images compile as [models of named
tensors](how-to/compile-any-module.md). Other classes of transformers that are not in its
`AutoModelForCausalLM` (encoder-decoders, models that hear) are refused by their names:
`T5ForConditionalGeneration is not a decoder-only language model that transformers knows`. Of a
model that sees or hears and has a decoder for its text, the text part is taken. A GGUF file of an
encoder, an adapter or a projector is refused by its header. A folder or file that holds one of
these is told apart by names alone:

| what is given | what the refusal says to do |
|---|---|
"""


def page(survey: Survey) -> str:
    """The page."""
    decoders = [family for family in survey.families if family.group != ENCODER_HALF]
    halves = [family.type for family in survey.families if family.group == ENCODER_HALF]
    stages = [f"| {name} | {survey.count(name)} | {_MEANS[name]} |" for name in STAGES]
    text = _HEAD.format(version=survey.transformers) + "\n".join(stages) + "\n"
    text += f"\nThere are {len(decoders)} decoders. {_UNBUILT}\n" + _TABLE
    text += "\n".join(map(_row, decoders)) + "\n"
    text += "\n## Encoders and halves of encoder-decoders\n\n"
    listed = "Listed as causal by transformers, served by nobody as such: " + ", ".join(halves)
    text += textwrap.fill(f"{listed}.", _WIDTH, break_on_hyphens=False) + "\n"
    return text + _OTHERS + "\n".join(map(_other, (*OTHERS, *WEIGHTS))) + "\n"


def _other(kind: Kind) -> str:
    return f"| {kind.what} | {kind.hint} |"


def _row(family: Family) -> str:
    loss = "" if family.int8_kl is None else f"{family.int8_kl:.1e} ({family.int8_ratio:.2f})"
    reason = family.reason.replace("|", "\\|").replace("<", "&lt;")
    cells = [f"`{family.type}`", family.proved, ", ".join(family.engines), loss, reason]
    return "| " + " | ".join(cells) + " |"
