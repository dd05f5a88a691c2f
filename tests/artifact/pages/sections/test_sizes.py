"""What bytes are spent on, in shares of all."""

from __future__ import annotations

from msgspec.structs import replace

from optc.artifact.manifest import FileEntry
from optc.artifact.pages.numbers import NOTHING
from optc.artifact.pages.sections.sizes import sizes
from optc.artifact.pages.sections.subject import Subject
from tests.artifact.pages.sample import report, subject
from tests.artifact.pages.sections.reading import listed, read_section, tables
from tests.artifact.toy import toy_manifest


def test_kinds_of_weights() -> None:
    root = read_section(sizes(subject()))
    assert tables(root)[0] == [
        ["embedding and head", "1", "3.0 MiB", "25.0\u202f%"],
        ["feed-forward", "6", "9.0 MiB", "75.0\u202f%"],
    ]
    assert listed(root, "figcaption") == [
        "Weights take 12.0 MiB as the recipe stores them, 8.3\u202f% of it for scales, zero points "
        "and biases, which are drawn lighter. An engine may lay them out otherwise."
    ]


def test_weights_of_no_bytes_have_no_shares() -> None:
    none = {"kind": "head", "tensors": 1, "bytes": 0, "scale_bytes": 0}
    assert tables(read_section(sizes(subject(report(tensors=[none])))))[0][0][3] == NOTHING


def test_files_stand_by_their_size() -> None:
    files = tuple(FileEntry(name, size, "ab" * 32) for name, size in (("a", 1), ("b", 2048)))
    section = sizes(Subject(replace(toy_manifest(()), files=files), {}))
    root = read_section(section)
    assert tables(root) == [[["b", "2.0 KiB", "ab" * 32], ["a", "1 B", "ab" * 32]]]
    assert listed(root, "h3") == ["Files"]
    assert "it is of an older compile" in listed(root, "p")[0]
    assert section.chart is None
