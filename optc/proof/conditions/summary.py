"""A summary of what a command judged, as Markdown for people and as JUnit XML for pipelines.

Commands fill in the same `Summary`; nothing here knows which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

#: What no XML 1.0 text may hold (https://www.w3.org/TR/xml/#charsets).
_NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
#: Characters that Markdown would take for its own.
_MARKDOWN = re.compile(r"([\\`*_<>|\[\]])")
_STATES = {True: "passed", False: "**FAILED**", None: "not judged"}


@dataclass(frozen=True)
class Check:
    """One thing that was judged.

    Attributes:
        group: What it belongs to, such as ``gates of target``.
        name: Of the thing.
        passed: None was not judged.
        detail: Value and bound, or why there is no verdict; one line.
    """

    group: str
    name: str
    passed: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Figures:
    """A table of figures: a title, headings, and rows of as many texts."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Summary:
    """The verdicts and figures of a command.

    Attributes:
        title: The command and what it was about.
        checks: In order.
        figures: Tables below them.
        notes: Warnings, one sentence each.
    """

    title: str
    checks: Sequence[Check] = ()
    figures: Sequence[Figures] = ()
    notes: Sequence[str] = ()

    @property
    def failed(self) -> int:
        """Checks that did not pass."""
        return sum(check.passed is False for check in self.checks)


def markdown(summary: Summary) -> str:
    """The summary as GitHub-flavoured Markdown, a heading of the second level above it."""
    parts = [f"## {_escaped(summary.title)}", _verdict(summary)]
    if summary.checks:
        columns = ("verdict", "of", "what", "")
        rows = [
            (_STATES[c.passed], *map(_escaped, (c.group, c.name, c.detail))) for c in summary.checks
        ]
        parts.append(_table(columns, rows))
    for table in summary.figures:
        cells = [[_escaped(cell) for cell in row] for row in table.rows]
        parts.append(f"### {_escaped(table.title)}")
        parts.append(_table([_escaped(column) for column in table.columns], cells))
    parts += [f"> warning: {_escaped(note)}" for note in summary.notes]
    return "\n\n".join(filter(None, parts)) + "\n"


def junit(summary: Summary) -> str:
    """The summary as JUnit XML: a test case a check; those not judged are skipped.

    Of the format's many dialects, what all readers know: ``testsuites``, ``testsuite``,
    ``testcase`` with ``failure`` or ``skipped``, and the counts.
    """
    counts = {
        "tests": str(len(summary.checks)),
        "failures": str(summary.failed),
        "errors": "0",
        "skipped": str(sum(check.passed is None for check in summary.checks)),
    }
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": _text(summary.title), **counts})
    for check in summary.checks:
        names = {"classname": _text(check.group), "name": _text(check.name)}
        case = ElementTree.SubElement(suite, "testcase", names)
        if check.passed is not True:
            kind = "skipped" if check.passed is None else "failure"
            ElementTree.SubElement(case, kind, {"message": _text(check.detail)})
    if summary.notes:
        output = ElementTree.SubElement(suite, "system-err")
        output.text = _text("\n".join(f"warning: {note}" for note in summary.notes))
    ElementTree.indent(root)
    text: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _verdict(summary: Summary) -> str:
    judged = [check for check in summary.checks if check.passed is not None]
    if not judged:
        return ""
    if summary.failed:
        return f"**FAILED**: {summary.failed} of {len(judged)}"
    return f"passed: {len(judged)} of {len(judged)}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    """A text that Markdown shows as it is, in one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(_text(text).split()))


def _text(text: str) -> str:
    """Without what XML cannot hold: names in reports come from others."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
