"""`Pass` and `PassReport`: options from texts and back, and what is counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.pipeline.base import LOCAL, Pass, PassReport


@dataclass(frozen=True)
class Paint(Pass):
    name: ClassVar[str] = "paint"

    colour: str = "red"
    coats: int = 2
    share: float = 0.5
    dry: bool = False
    folder: str = field(default="", metadata=LOCAL)

    def __post_init__(self) -> None:
        self.check_option("colour", ("red", "blue"))
        self.check_option("coats", (1, 2, 3), "paint less")


def test_the_report_counts_by_kind_and_keeps_reasons() -> None:
    report = PassReport()
    report.add("doors")
    report.add("walls", 4)
    report.add("doors", 2)
    assert (report.count, report.details) == (7, {"doors": 3, "walls": 4})
    report.skip(ir.Node("", "Tanh", [], name="hall"), "it is wet")
    report.skip(ir.Node("", "Tanh", []), "it is open")
    report.skip(None, "nobody is at home")
    assert report.skipped == ["hall: it is wet", "Tanh: it is open", "nobody is at home"]


@pytest.mark.parametrize(("missed", "warned"), [(0, False), (5, False), (6, True), (100, True)])
def test_a_share_that_did_not_get_what_was_asked_for_is_a_warning(
    missed: int, warned: bool
) -> None:
    report = PassReport()
    report.skip(None, "nobody is at home")
    report.miss(ir.Node("", "MatMul", [], name="hall"), "K=3 is odd", missed)
    report.judge_missed(100, "painted")
    wanted = [f"{missed}% of the weights are not painted; hall: K=3 is odd"]
    assert report.warnings == wanted * warned
    PassReport().judge_missed(0, "painted")


def test_only_options_that_differ_are_in_the_text_and_none_that_is_local() -> None:
    assert Paint().spec() == "paint"
    one = Paint("blue", 3, 0.25, dry=True, folder="/home/me")
    assert one.spec() == "paint{colour=blue,coats=3,share=0.25,dry=true}"
    assert Paint.local_options() == {"folder"}


def test_options_are_typed_by_their_defaults() -> None:
    texts = {"colour": "blue", "coats": "1", "share": "1e-1", "dry": "True", "folder": "a"}
    assert Paint.from_options(texts) == Paint("blue", 1, 0.1, dry=True, folder="a")


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"size": "1"}, "unknown option 'size'", "options: colour, coats, share, dry, folder"),
        ({"coats": "two"}, "option coats='two' is not a int", ""),
        ({"dry": "1"}, "option dry='1' is not a bool", ""),
        ({"colour": "green"}, "colour=green is not possible", "one of red, blue"),
        ({"coats": "9"}, "coats=9 is not possible", "paint less"),
    ],
)
def test_what_an_option_cannot_be_is_refused(
    options: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        Paint.from_options(options)
    assert (caught.value.message, caught.value.hint or "") == (message, hint)
    assert caught.value.where == "pass paint"
