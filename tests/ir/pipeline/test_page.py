"""Pages of passes, from their docstrings and class variables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.forms.decoder import Dense
from optc.ir.forms.form import Form
from optc.ir.pipeline import registry
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassCosts
from optc.ir.pipeline.page import describe, markdown, markdown_pages
from optc.ir.pipeline.phase import Effect

PAGE = Path(__file__).parents[3] / "docs/passes.md"


@dataclass(frozen=True)
class Turn(Pass):
    """Turns ``Add`` around.

    Cases:
    1. one `Add`
       of two values;
    2. another.

    Attributes:
        most: So many at most,
            or all with | 0.
        names: Of nodes.
    """

    name: ClassVar[str] = "turn"
    expected: ClassVar[bool] = True
    effects: ClassVar[Effect] = Effect.READS_TEXT
    pays: ClassVar[str] = "Always (ADR 1)."
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)
    before: ClassVar[tuple[str, ...]] = ("late",)

    most: int = 8
    names: str = ""

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """One layer."""
        return PassCosts(1)


def test_a_page_has_all_that_a_pass_says() -> None:
    page = describe(Turn)
    assert page.does == (
        "Turns `Add` around.",
        "Cases:",
        "1. one `Add` of two values;",
        "2. another.",
    )
    assert page.pays == "Always (ADR 1)."
    assert page.costs == "Memory: One layer. It reads a text (`--calibration`)."
    assert page.order == ("takes the dense form", "before `late`")
    assert page.idle == "a compile warns"
    assert [(one.name, one.default, one.text) for one in page.options] == [
        ("most", "8", "So many at most, or all with | 0."),
        ("names", "", "Of nodes."),
    ]
    text = markdown(page)
    assert "| `most` | `8` | So many at most, or all with \\| 0. |" in text
    assert "| `names` | none | Of nodes. |" in text
    assert "**When it pays:** Always (ADR 1)." in text


def test_options_of_a_common_base_are_described_and_paths_left_out() -> None:
    names = {one.name: one.text for one in describe(registry.named("calibrate")).options}
    assert names["windows"] == "Windows of the text, evenly spaced."
    assert not {"text", "folder", "cache"} & names.keys()


def test_docs_passes_md_is_what_passes_say() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert markdown_pages(registry.pass_groups()) == written, (
        "run: optc passes --markdown > docs/passes.md"
    )


def test_every_option_of_our_passes_says_what_it_is() -> None:
    silent = [
        f"{name}.{one.name}"
        for name, kind in registry.passes().items()
        for one in describe(kind).options
        if not one.text
    ]
    assert silent == []


def test_an_unknown_pass_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        registry.named("smoth")
    assert caught.value.render() == "passes: unknown pass 'smoth' (did you mean 'smooth'?)"
