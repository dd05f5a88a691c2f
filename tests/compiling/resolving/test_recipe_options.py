"""The recipe of a compile, with what options change and add."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.recipe_options import check_text, resolve_recipe
from optc.errors import InputError
from optc.proof.reference.text import calibration_text, digest_text
from optc.system.options import CompileOptions

MODEL = Path("model")


def resolved(recipe: str, **more: Any) -> tuple[Recipe, Recipe, list[str]]:
    return resolve_recipe(MODEL, CompileOptions(recipe=recipe, **more))


def passes(recipe: Recipe) -> list[str]:
    return [one.name for one in recipe.pipeline.passes]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "t.txt"
    path.write_text("to calibrate with")
    return path


def test_overrides_reach_both_recipes() -> None:
    sets, gates = ["quantize-weights.group_size=64"], ["kl_mean=0.5"]
    whole, draft, warnings = resolved("int8-fused", set=sets, gate=gates)
    assert whole == draft
    assert "quantize-weights{group_size=64," in whole.pipeline.spec()
    assert whole.gates["kl_mean"] == 0.5
    assert warnings == []


def test_a_draft_gets_no_room_for_adapters_and_no_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "optc.importer.additions.heads.digest_heads", lambda folder: f"sha of {folder.name}"
    )
    whole, draft, _ = resolved("fp32", adapters="max=8,rank=16", medusa=tmp_path / "heads")
    assert passes(whole)[-1] == "adapters"
    assert "medusa-heads" in passes(whole)
    assert "sha256=sha of heads" in whole.pipeline.spec()
    assert not {"adapters", "medusa-heads"} & set(passes(draft))


def stated(recipe: Recipe, name: str) -> dict[str, str]:
    (one,) = (p for p in recipe.pipeline.passes if p.name == name)
    return {key: getattr(one, key) for key in ("text", "folder", "sha256")}


def test_a_recipe_that_calibrates_takes_the_shipped_text() -> None:
    whole, draft, warnings = resolved("int4-fused")
    digest = digest_text(calibration_text())
    assert stated(whole, "propagate-errors") == {"text": "", "folder": "model", "sha256": digest}
    assert whole == draft
    assert warnings == [], "what the model explains of the text is measured"


def test_a_recipe_that_calibrates_takes_the_text_that_is_given(text: Path) -> None:
    whole, draft, warnings = resolved("trt-int8-qdq", calibration=text)
    expected = {"text": str(text), "folder": "model", "sha256": digest_text(text)}
    assert stated(whole, "calibrate") == expected
    assert whole == draft
    assert warnings == []


def test_the_cache_folder_is_that_of_the_option_or_of_the_environment(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder(**more: Any) -> str:
        whole, _, _ = resolved("int4-fused", calibration=text, **more)
        (one,) = (p for p in whole.pipeline.passes if p.name == "propagate-errors")
        assert "cache" not in one.spec()
        return str(one.cache)

    monkeypatch.delenv("OPTC_CALIBRATION_CACHE", raising=False)
    monkeypatch.setenv("OPTC_CACHE", "/of/the/user")
    assert Path(folder()) == Path("/of/the/user/calibrations")
    monkeypatch.setenv("OPTC_CALIBRATION_CACHE", "/of/the/environment")
    assert folder() == "/of/the/environment"
    assert folder(calibration_cache="mine") == "mine"
    assert folder(calibration_cache=Path("none")) == ""
    monkeypatch.setenv("OPTC_CALIBRATION_CACHE", "none")
    assert folder() == ""


def test_a_text_that_is_not_used_is_a_warning(text: Path) -> None:
    plain, _, _ = resolved("fp32")
    whole, _, warnings = resolved("fp32", calibration=text)
    assert whole == plain
    assert warnings == ["recipe fp32 has no pass that calibrates: the text is not used"]


def test_a_text_that_is_not_there(text: Path) -> None:
    check_text(text, "--eval-text")
    with pytest.raises(InputError, match=r"^--eval-text: no such file: "):
        check_text(text.parent, "--eval-text")
    with pytest.raises(InputError, match=r"^--calibration: no such file: absent"):
        resolved("fp32", calibration="absent")


def test_a_budget_reaches_the_pass(text: Path) -> None:
    whole, draft, warnings = resolved("int4-fast", budget="3.5bpw", calibration=text)
    (one,) = (p for p in whole.pipeline.passes if p.name == "allocate-bits")
    assert one.stated_options() == {"budget": "3.5bpw", "sha256": digest_text(text)}
    assert whole == draft
    assert warnings == []


def test_a_budget_that_is_none_is_refused(text: Path) -> None:
    with pytest.raises(InputError, match=r"^pass allocate-bits: '3' is no budget"):
        resolved("mixed-4", budget="3", calibration=text)
