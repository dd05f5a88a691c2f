"""The survey that is shipped, and the page that it makes."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.families.layers_of import refused_layers
from benchmarks.families.page import page
from optc.importer.families.survey import ENCODER_HALF, STAGES, read_survey, survey_of
from optc.system.sources.kinds import OTHERS, WEIGHTS

ROOT = Path(__file__).parents[3]
CONTENT = {
    "transformers": "9.9",
    "types": {
        "b": {"group": "decoder", "stages": ["built"], "reason": "node: a | b <c>"},
        "a": {
            "class": "AForCausalLM",
            "group": "decoder",
            "stages": ["built", "imported"],
            "reason": "",
            "engines": ["tvm"],
            "error": 1e-7,
            "int8_kl": 0.00123,
            "int8_ratio": 1.04,
        },
        "c": {"group": ENCODER_HALF, "stages": [], "reason": "an encoder"},
    },
}


def test_most_proved_first_and_encoders_last() -> None:
    survey = survey_of(CONTENT)
    assert [family.type for family in survey.families] == ["a", "b", "c"]
    assert [family.proved for family in survey.families] == ["imported", "built", ""]
    assert (survey.count("built"), survey.count("imported")) == (2, 1)
    assert survey.families[0].to_json() == {
        "type": "a",
        "class": "AForCausalLM",
        "group": "decoder",
        "proved": ["built", "imported"],
        "reason": "",
        "engines": ["tvm"],
        "layers": [],
        "error": 1e-7,
        "int8_kl": 0.00123,
        "int8_ratio": 1.04,
    }


def test_the_page_of_a_survey() -> None:
    text = page(survey_of(CONTENT))
    assert "| `a` | imported | tvm | 1.2e-03 (1.04) |  |" in text
    assert "| `b` | built |  |  | node: a \\| b &lt;c> |" in text
    assert "There are 2 decoders." in text
    assert "\nListed as causal by transformers, served by nobody as such: c.\n" in text


def test_what_is_no_decoder_is_there_with_its_answer() -> None:
    rows = page(survey_of(CONTENT)).partition("## Other models")[2].splitlines()
    for kind in (*OTHERS, *WEIGHTS):
        assert f"| {kind.what} | {kind.hint} |" in rows


def test_a_decoder_whose_layers_do_not_all_attend_is_said_to_be_one() -> None:
    told = [
        family
        for family in read_survey().families
        if family.group != ENCODER_HALF and refused_layers(family.type)
    ]
    assert len(told) > 5
    for family in told:
        assert family.proved in ("", "built"), family.type
        assert "node_" not in family.reason, f"{family.type}: a node of its graph says nothing"
    said = [re.search("layers of the kind|states no attention heads", one.reason) for one in told]
    assert all(said)


def test_the_shipped_survey_is_whole() -> None:
    survey = read_survey()
    assert len(survey.families) > 100
    for family in survey.families:
        assert list(family.stages) == [s for s in STAGES if s in family.stages], family.type
        stopped = family.group != ENCODER_HALF and STAGES[-1] not in family.stages
        assert bool(family.reason) or not stopped or family.stages, family.type


def test_docs_are_made_of_it() -> None:
    text = (ROOT / "docs/families.md").read_text(encoding="utf-8")
    assert text == page(read_survey()), "python -m benchmarks.families --table docs/families.md"
