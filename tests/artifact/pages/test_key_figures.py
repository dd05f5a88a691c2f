"""What one looks at first on an artifact's page."""

from __future__ import annotations

from typing import Any

from optc.artifact.pages.artifact_page import artifact_page
from optc.artifact.pages.numbers import NOTHING
from tests.artifact.pages.pages import read_page
from tests.artifact.pages.sample import gate, report, subject


def figures(found: dict[str, Any] | None = None) -> dict[str, str]:
    """By name, with their notes."""
    page = read_page(artifact_page(subject(found)).text)
    names, values = ([one.text for one in page.all(tag)] for tag in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def test_values_are_those_of_the_gates() -> None:
    assert figures() == {
        "Gates passed": "1 of 3",
        "Mean KL": "0.000900nats a token",
        "Perplexity": f"{NOTHING}against float32",
        "Decode": "3.00\u202f\u00d7the speed of float32",
        "Prefill": f"{NOTHING}the speed of float32",
        "Size": "0 B0 files",
    }


def test_without_values_there_are_dashes() -> None:
    found = figures(report(gates=[gate("kl_mean", None, 0.003, None)]))
    assert found["Gates passed"] == "0 of 1"
    for name in ("Mean KL", "Perplexity", "Decode", "Prefill"):
        assert found[name].startswith(NOTHING)


def test_a_perplexity_is_a_change() -> None:
    for ratio, shown in ((1.01, "+1.0\u202f%"), (0.98, "\u22122.0\u202f%"), (1.0, "+0")):
        found = figures(report(gates=[gate("perplexity_ratio", ratio, None, None)]))
        assert found["Perplexity"].startswith(shown), found["Perplexity"]


def test_of_several_engines_the_first_has_the_value() -> None:
    listed = [gate("kl_mean", value, None, None) for value in (None, 0.5, 0.25)]
    assert figures(report(gates=listed))["Mean KL"] == "0.500nats a token"
