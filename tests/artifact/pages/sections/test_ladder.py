"""Recipes that were tried: what was predicted, measured and decided of each."""

from __future__ import annotations

from optc.artifact.pages.numbers import NOTHING
from optc.artifact.pages.sections.ladder import ladder
from tests.artifact.pages.sample import LADDER, report, rung, subject
from tests.artifact.pages.sections.reading import listed, read_section, tables


def test_rungs_by_what_is_predicted_of_them() -> None:
    root = read_section(ladder(subject()))
    assert listed(root, "th", scope="col") == [
        *("recipe", "decode/s at most", "prefill/s at most", "artifact"),
        *("kl_mean", "top1_agreement", "windows", "time", "outcome", "why"),
    ]
    rows = {row[0]: row[1:] for row in tables(root)[0]}
    predicted = ["120", "3,000", "5.0 MiB"]
    assert rows["tiny"][:7] == [*predicted, "", "", "", ""]
    assert rows["small"][:7] == [*predicted, "0.500", "", "4", "90\u202fs"]
    assert rows["exact"][3:] == ["0.00200", "", "60", "70\u202fs", "chosen", ""]
    assert rows["odd"] == ["", "", "", "", "", "", "", "left out", "it suits nobody"]


def test_rungs_that_were_built_and_measured() -> None:
    built = {"speed": 2.5, "artifact_bytes": 3 << 20}
    rungs = [
        rung("fast", "chosen", "", measured=built, values={"sqnr_db": 41.0}, seconds=12.0),
        rung("small", "fell", "sqnr_db 9", measured={"speed": None}, values={}, seconds=0.0),
        {"recipe": "odd", "outcome": "left out", "why": "it suits nobody"},
    ]
    found = LADDER | {"objective": "speed", "gates": {"sqnr_db": 40.0}, "rungs": rungs}
    root = read_section(ladder(subject(report(ladder=found))))
    assert listed(root, "th", scope="col") == [
        *("recipe", "times float32", "artifact", "sqnr_db", "time", "outcome", "why")
    ]
    assert tables(root)[0] == [
        ["fast", "2.50", "3.0 MiB", "41.0", "12\u202fs", "chosen", ""],
        ["small", NOTHING, NOTHING, "", "", "fell", "sqnr_db 9"],
        ["odd", "", "", "", "", "left out", "it suits nobody"],
    ]
    (said,) = listed(root, "p")
    assert said.startswith("2 recipes were built and measured, to hold sqnr_db 40.0; ")
    assert "the fastest engine here was chosen" in said


def test_without_a_ladder_there_is_none() -> None:
    named = report()
    del named["ladder"]
    assert ladder(subject(named)) is None
