"""The machine, versions and warnings of a compile, as a reader takes them."""

from __future__ import annotations

import pytest

from optc.artifact.pages.sections.identity import engines, identity, warnings
from tests.artifact.pages.sample import report, subject
from tests.artifact.pages.sections.reading import first_row, listed, read_section, tables


def machine(**facts: object) -> dict[str, str]:
    root = read_section(identity(subject(report(machine=facts))))
    assert listed(root, "h3") == ["Versions", "The machine that compiled"]
    return dict(tables(root)[-1])


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("memory_bytes", 1 << 34, "16.0 GiB"),
        ("memory_bytes", 0, "0 B"),
        ("memory_bytes", 1 << 62, str(1 << 62)),
        ("memory_bytes", -1, "-1"),
        ("memory_bytes", True, "True"),
        ("memory_bytes", "much", "much"),
        ("threads", 1 << 34, str(1 << 34)),
        ("features", ["avx2", "fma"], "avx2, fma"),
        ("features", [], "none"),
        ("cpu", "A processor", "A processor"),
    ],
)
def test_facts_of_the_machine(name: str, value: object, shown: str) -> None:
    assert machine(**{name: value}) == {name: shown}


def test_a_machine_that_is_not_in_the_report_has_no_heading() -> None:
    root = read_section(identity(subject(report(machine={}))))
    assert listed(root, "h3") == ["Versions"]
    assert list(root.iter("thead")) == [], "columns without names have no row of headings"
    facts = dict(tables(root)[0])
    assert facts["model"] == "toy (llama)"
    assert facts["recipe"] == "fp32"
    assert dict(tables(root)[1]) == {"optc": "0.1.0"}


def test_limits_of_an_engine() -> None:
    row = first_row(read_section(engines(subject())))
    assert row == row | {
        "engine": "target",
        "role": "target",
        "backend": "tvm",
        "target": "x86-64-v3",
        "context": "32",
        "sequences": "4",
        "KV type": "float32",
    }
    assert row["KV a token"]


def test_at_most_a_hundred_warnings() -> None:
    assert warnings(subject(report(warnings=[]))) is None
    root = read_section(warnings(subject(report(warnings=[str(n) for n in range(101)]))))
    assert listed(root, "li") == [str(n) for n in range(100)]
