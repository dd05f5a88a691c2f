"""Summaries as Markdown and as JUnit XML."""

from __future__ import annotations

from xml.etree import ElementTree

from optc.proof.conditions.summary import Check, Figures, Summary, junit, markdown

SUMMARY = Summary(
    "optc diff a_b <old> new",
    (
        Check("gates of target", "kl_mean", True, "0.003, bound 0.008"),
        Check("conditions", "bytes<=1|2", False, "bytes 3 is not <= 2\nbell \x07"),
        Check("gates of target", "decode_speedup", None, "too noisy"),
    ),
    (Figures("sizes", ("figure", "A"), [("bytes", "`1`"), ("*", "2")]),),
    ("a warning <b>",),
)


def test_markdown() -> None:
    assert markdown(SUMMARY) == (
        "## optc diff a\\_b \\<old\\> new\n\n"
        "**FAILED**: 1 of 2\n\n"
        "| verdict | of | what |  |\n"
        "| --- | --- | --- | --- |\n"
        "| passed | gates of target | kl\\_mean | 0.003, bound 0.008 |\n"
        "| **FAILED** | conditions | bytes\\<=1\\|2 | bytes 3 is not \\<= 2 bell \ufffd |\n"
        "| not judged | gates of target | decode\\_speedup | too noisy |\n\n"
        "### sizes\n\n"
        "| figure | A |\n"
        "| --- | --- |\n"
        "| bytes | \\`1\\` |\n"
        "| \\* | 2 |\n\n"
        "> warning: a warning \\<b\\>\n"
    )


def test_junit() -> None:
    root = ElementTree.fromstring(junit(SUMMARY).encode())
    assert root.tag == "testsuites"
    counts = {"tests": "3", "failures": "1", "errors": "0", "skipped": "1"}
    assert root.attrib == counts
    (suite,) = root
    assert suite.attrib == {"name": "optc diff a_b <old> new", **counts}
    passed, failed, skipped = suite.findall("testcase")
    assert passed.attrib == {"classname": "gates of target", "name": "kl_mean"}
    assert list(passed) == []
    failure = failed.find("failure")
    assert failure is not None
    assert failure.attrib["message"] == "bytes 3 is not <= 2\nbell \ufffd"
    assert [child.tag for child in skipped] == ["skipped"]
    assert suite.findtext("system-err") == "warning: a warning <b>"


def test_a_summary_without_checks() -> None:
    empty = Summary("optc bench a")
    assert markdown(empty) == "## optc bench a\n"
    assert ElementTree.fromstring(junit(empty).encode()).attrib["tests"] == "0"
    good = Summary("x", (Check("g", "n", True),))
    assert "passed: 1 of 1" in markdown(good)
    assert good.failed == 0
