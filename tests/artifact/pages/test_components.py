"""Tables: headings where columns have names, captions, and the rows of a report that is damaged."""

from __future__ import annotations

from xml.etree import ElementTree

from optc.artifact.pages.components import MOST_ROWS, Column, code, numbers, table


def read(*rows: tuple[str | None, ...], names: tuple[str, ...], caption: str = "") -> list[str]:
    """The tags and texts of a table's parts, in order."""
    columns = [Column(names[0], "code"), *numbers(*names[1:])]
    root = ElementTree.fromstring(table(columns, rows, caption).render())
    return [
        f"{one.tag} {''.join(one.itertext())}".strip() for one in root.iter() if one.tag != "div"
    ]


def test_columns_with_names_have_headings() -> None:
    assert read(("a", "1"), names=("name", "ms")) == [
        *("table namemsa1", "thead namems", "tr namems", "th name", "th ms"),
        *("tbody a1", "tr a1", "th a", "td 1"),
    ]


def test_columns_without_names_have_none() -> None:
    assert read(("a", None), names=("", "")) == ["table a", "tbody a", "tr a", "th a", "td"]
    assert read(("a", "1"), names=("", "ms"))[1] == "thead ms"


def test_a_caption_stands_above() -> None:
    assert read(names=("",), caption="Of a pass")[1] == "caption Of a pass"


def test_rows_without_an_end_are_cut() -> None:
    rows = [(str(n), "x") for n in range(MOST_ROWS + 2)]
    cut = read(*rows, names=("", ""))
    assert cut[-1] == "td \u2026 and 2 more"
    assert cut[-4] == f"th {MOST_ROWS - 1}"
    assert read(*rows[:MOST_ROWS], names=("", ""))[-1] == "td x"


def test_a_cell_has_the_name_of_its_column() -> None:
    root = ElementTree.fromstring(table([Column("name"), *numbers("ms")], [("a", "1")]).render())
    (cell,) = root.iter("td")
    assert cell.attrib == {"class": "number", "data-column": "ms"}
    assert [one.get("scope") for one in root.iter("th")] == ["col", "col", "row"]


def test_code_is_as_it_is_typed() -> None:
    assert code("optc <run>").render() == "<code>optc &lt;run&gt;</code>"
