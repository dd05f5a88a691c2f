"""`examples/training/train_eagle.py`: its layer is the one that a compile makes of its folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from optc import importer
from optc.driver.drafts.eagle_layer import make_draft_layer
from tests.support.oracle import Array
from tests.support.pipelines import pipeline_of
from tests.support.ragged import run
from tests.support.stub import write_tiny_model

SCRIPTS = Path(__file__).parents[2] / "examples/training"
TOKENS = 10


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import train_eagle

    monkeypatch.setitem(sys.modules, "train_eagle", train_eagle)
    return train_eagle


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny", weight_std=0.3)


@pytest.fixture
def model(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def embedding_of(model: Any) -> Any:
    return model.get_input_embeddings().weight.detach()


def test_guesses_of_every_part_are_those_of_the_compiled_layer(
    script: ModuleType, folder: Path, model: Any, tmp_path: Path
) -> None:
    """Row j of part s is a draft behind s others: their rows read guesses, those before states."""
    import torch
    from safetensors.torch import save_file

    draft = script.Draft(model)
    for parameter in draft.parameters():  # stored in bfloat16
        parameter.data = (parameter + 0.1 * torch.randn_like(parameter)).bfloat16().float()
    save_file(draft.tensors(), tmp_path / "eagle.safetensors")
    layer = importer.import_model(folder).model
    pipeline_of("canonicalize").run(layer)
    make_draft_layer(layer, tmp_path)
    tokens = torch.randint(3, 200, (1, TOKENS))
    states = torch.randn(1, TOKENS, 32)
    embedding = embedding_of(model)
    with torch.no_grad():
        parts = draft.unroll(embedding[tokens], states, 3)
    logits = [(part[0] @ embedding.T).numpy() for part in parts]
    known = np.pad(states[0].numpy()[:-1], ((1, 0), (0, 0)))
    guesses = [part[0].numpy() for part in parts]

    def step(features: Array) -> Array:
        feeds = {
            "input_ids": tokens.numpy(),
            "position_ids": np.arange(TOKENS)[None],
            "features": features[None],
        }
        result: Array = run(layer, feeds)[0][0]
        return result

    np.testing.assert_allclose(logits[0], step(known), atol=1e-4)
    for part in (1, 2):
        for row in (part, 5, TOKENS - 1):
            features = known.copy()
            for drafted in range(1, part + 1):
                at = row - part + drafted
                features[at] = guesses[drafted - 1][at - 1]
            np.testing.assert_allclose(logits[part][row], step(features)[row], atol=1e-4)


def test_a_run_goes_on_where_it_was_stopped(
    script: ModuleType, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    arguments = argparse.Namespace(steps=4, batch=2, rate=1e-2, parts=2, precision="float32")
    windows, states = torch.randint(3, 200, (6, 8)), torch.randn(6, 8, 32)
    embedding = embedding_of(model)
    monkeypatch.setattr(script, "SAVED", 2)

    def trained(state: str) -> Any:
        torch.manual_seed(4)
        draft = script.Draft(model)
        script.train(draft, embedding, embedding, windows, states, arguments, tmp_path / state)
        return draft.tensors()

    whole = trained("whole.pt")
    loss_of, calls = script.loss_of, []

    def stopped(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return loss_of(*given)

    monkeypatch.setattr(script, "loss_of", stopped)
    with pytest.raises(KeyboardInterrupt):
        trained("parts.pt")
    resumed = trained("parts.pt")
    assert len(calls) == 5, "two steps, one that was stopped, and two"
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert not torch.equal(whole["eagle.fc.weight"], script.Draft(model).fc.weight.bfloat16())


def test_windows_may_begin_without_states(script: ModuleType) -> None:
    import torch

    torch.manual_seed(0)
    states = torch.ones(64, 12, 3)
    hidden = script.hide(states)
    begins = (hidden[:, :, 0] == 0).sum(1)
    assert 0 < (begins > 0).sum() < 24
    rows = torch.arange(12)
    assert torch.equal(hidden[:, :, 0], (rows >= begins[:, None]).float())


def test_a_model_of_another_layout_is_refused(script: ModuleType, model: Any) -> None:
    script.check_layout(model)
    model.model.norm.register_forward_hook(lambda module, x, y: 2 * y)
    with pytest.raises(SystemExit, match="no plain RMS norm"):
        script.check_layout(model)
    del model.model.norm
    with pytest.raises(SystemExit, match=r"no model\.layers, model\.norm"):
        script.check_layout(model)
