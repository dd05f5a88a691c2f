"""What passes that take structures out have in common: orders, memory, text, checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.errors import InputError
from optc.ir.pipeline import registry
from optc.ir.pipeline.base import PassContext
from optc.ir.pipeline.phase import Effect
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.prune.structured import structures
from optc.passes.prune.structured.prune_width import PruneWidth
from optc.passes.prune.structured.structures import LATER
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import calibration_of
from tests.passes.prune.structured.on_letters import pruning
from tests.support.dense_models import dense_model
from tests.support.letters import letters_folder
from tests.support.pipelines import pipeline_of

STRUCTURED = ("prune-depth", "prune-heads", "prune-width")


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("earlier", [one for one in LATER if one in registry.passes()])
def test_they_come_before_what_measures_merges_or_rounds(name: str, earlier: str) -> None:
    with pytest.raises(InputError, match=f"{name} must come before {earlier}"):
        pipeline_of(f"canonicalize,{earlier},{name}")


@pytest.mark.parametrize("name", STRUCTURED)
def test_a_second_one_of_the_same_kind_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} must come before {name}"):
        pipeline_of(f"canonicalize,{name},{name}")


def test_depth_comes_first_and_heads_and_width_in_any_order() -> None:
    pipeline_of("canonicalize,prune-depth,prune-heads,prune-width,fuse-qkv,kv-cache")
    pipeline_of("canonicalize,prune-width,prune-heads,propagate-errors,quantize-weights")
    with pytest.raises(InputError, match="prune-depth must come before prune-width"):
        pipeline_of("canonicalize,prune-width,prune-depth")


@pytest.mark.parametrize("name", STRUCTURED)
def test_they_take_the_dense_form_and_read_a_text(name: str, tmp_path: Path) -> None:
    one = registry.passes()[name]
    assert one.has(Effect.READS_TEXT)
    assert one.required
    assert [form.name for form in one.takes] == ["dense"]
    with pytest.raises(InputError, match="nothing says whose tokenizer reads the text"):
        one().requires(dense_model(1))


@pytest.mark.parametrize("name", STRUCTURED)
def test_a_target_that_is_met_already_is_told(name: str, tmp_path: Path) -> None:
    folder = letters_folder(tmp_path)
    with pytest.raises(InputError) as caught:
        pruning(folder, name, target="1M parameters").run(dense_model(2))
    assert str(caught.value) == (
        f"pass {name}: the model meets the target 1M parameters already: it has 46,377 parameters "
        "(leave the pass out, or ask for less)"
    )


def test_layers_that_lose_nothing_are_fine_in_a_part(tmp_path: Path) -> None:
    """As where a self-draft ends before the layer that an MLP is taken out of."""
    model, one = dense_model(3), pruning(letters_folder(tmp_path), "prune-depth", units="mlp")
    part = dense_model(1)
    Pipeline((one,)).run(model)
    store = calibration_of(model)
    assert store.find("l0.down", "prune-depth: kept units") is None
    part.graph.meta["optc.calibration"] = store
    (record,) = Pipeline((one,)).run(part)
    assert record.report.details == {"nothing in these layers": 1}


def test_memory_is_that_of_both_streams() -> None:
    model = dense_model(2)
    few, many = (PruneWidth(windows=count).costs(model).working for count in (4, 64))
    assert 0 < few < many


def test_what_is_left_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def broken(model: object) -> None:
        raise RuntimeError("heads")

    monkeypatch.setattr(structures, "check_structure", broken)
    one = pruning(letters_folder(tmp_path), "prune-width", multiple=4, refit=False)
    pipeline = Pipeline((one,))
    with pytest.raises(RuntimeError, match="heads"):
        pipeline.run(dense_model(1))


def test_options_of_later_passes_matter_only_to_targets_that_they_change(
    tmp_path: Path,
) -> None:
    """A calibration is found again unless the bytes that a target counts are others."""
    folder, found = letters_folder(tmp_path), []
    for target in ("0.75x", "60KB"):
        for head in (True, False):
            options = {"multiple": 4, "refit": False, "target": target}
            one = pruning(folder, "prune-width", cache=str(tmp_path / "cache"), **options)
            report = one.run(
                dense_model(3), PassContext(later=(QuantizeWeights(bits=8, head=head),))
            )
            found.append(bool(report.facts.get("from_cache")))
    assert found == [False, True, False, False]
