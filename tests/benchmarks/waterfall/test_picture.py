"""The picture of the waterfall: a bar for each step and column, with its figures."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.waterfall.picture import picture

ROWS = [
    {"step": "eager & slow", "one": 10.0, "sixteen": 40.0, "mb": 538.1, "kl": 0.0},
    {"step": "int8 KV", "one": 123.0, "sixteen": 456.0, "mb": 143.9, "kl": 0.00312},
]
SVG = "{http://www.w3.org/2000/svg}"


def test_every_step_has_a_bar_in_both_columns_with_its_figures() -> None:
    root = ElementTree.fromstring(picture("a-model", ROWS))
    texts = [str(one.text) for one in root.iter(f"{SVG}text")]
    assert texts.count("eager & slow") == 2
    assert "123 tok/s, 144 MB, KL 0.0031" in texts
    assert "456 tok/s, 144 MB, KL 0.0031" in texts
    assert "10.0 tok/s, 538 MB, KL 0" in texts


def test_what_a_step_added_is_the_lighter_part_of_its_bar() -> None:
    root = ElementTree.fromstring(picture("a-model", ROWS))
    widths = {kind: [float(one.attrib["width"]) for one in root.iter(f"{SVG}rect")
                     if one.attrib.get("class") == kind] for kind in ("fill", "soft")}  # fmt: skip
    assert widths["fill"][0] == 0  # the first adds all that it has
    assert abs(widths["fill"][1] - widths["soft"][0]) < 0.2  # the second starts where it ended
    assert widths["soft"][1] / (widths["fill"][1] + widths["soft"][1]) > 0.9
