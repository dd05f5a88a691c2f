"""``optc families``: which types of language models are taken, and what was proved of each."""

from __future__ import annotations

import click

from optc.cli.output import json_option, print_json, show, table
from optc.importer.families.survey import ENCODER_HALF, STAGES, Family, Survey, read_survey


@click.command("families", short_help="List the types of models, and what was proved of each.")
@json_option
def command(as_json: bool) -> None:
    """List the types of transformers' causal language models, and what was proved of each by a
    tiny random model: how far it comes, with which engines, and what stops it."""
    survey = read_survey()
    if as_json:
        families = [family.to_json() for family in survey.families]
        print_json("families", {"transformers": survey.transformers, "families": families})
        return
    rows = table("families", "type", "proved", "engines", "what stops it", prose=["what stops it"])
    for family in survey.families:
        if family.group != ENCODER_HALF:
            rows.add_row(family.type, family.proved, " ".join(family.engines), family.reason)
    show(rows, *_notes(survey))


def _notes(survey: Survey) -> list[str]:
    """The sums, and the types that nobody serves as language models."""
    decoders = [family for family in survey.families if family.group != ENCODER_HALF]
    halves: list[Family] = [f for f in survey.families if f.group == ENCODER_HALF]
    counts = ", ".join(f"{stage} {survey.count(stage)}" for stage in STAGES[1:])
    return [
        f"of {len(decoders)} types of transformers {survey.transformers}: {counts}",
        "encoders and halves of encoder-decoders that transformers lists as causal: "
        + ", ".join(family.type for family in halves),
    ]
