"""`examples/training/train_eagle.py`: its layer is the one that a compile makes of its folder."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from optc.compiling.drafts.eagle_layer import make_draft_layer
from optc.importer import import_model as importer
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


def windows_of(count: int, size: int) -> Any:
    """Windows of tokens and states by chance, whose guesses all count."""
    import torch
    from eagle_windows import Windows

    tokens = torch.randint(3, 200, (count, size))
    return Windows(tokens, torch.randn(count, size, 32), torch.zeros(count, dtype=torch.long))


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
    windows = windows_of(6, 8)
    embedding = embedding_of(model)
    monkeypatch.setattr(script, "SAVED", 2)

    def trained(state: str) -> Any:
        torch.manual_seed(4)
        draft = script.Draft(model)
        script.train(draft, embedding, embedding, windows, arguments, tmp_path / state)
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


def test_the_loss_is_a_cross_entropy_and_so_is_its_gradient(
    script: ModuleType, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two parts, the second of which counts less, and of the rows that the model said."""
    import eagle_loss
    import torch

    monkeypatch.setattr(eagle_loss, "ROWS", 3)
    lm_head = embedding_of(model)
    windows = windows_of(2, 6)
    windows.begins[1] = 3
    counts = torch.tensor([[0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]]).bool()
    teacher = (windows.hidden[counts] @ lm_head.T).softmax(-1)
    guesses = [torch.randn(2, 6, 32, requires_grad=True) for _ in range(2)]
    expected = torch.zeros(())
    for part, guess in enumerate(guesses):
        loss = torch.nn.functional.cross_entropy(guess[counts] @ lm_head.T, teacher)
        expected = expected + eagle_loss.DECAY**part * loss
    gradients = torch.autograd.grad(expected, guesses)
    found = script.loss_of(guesses, windows, lm_head)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, guesses), gradients)


def test_a_layer_is_trained_further(script: ModuleType, model: Any, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    first = script.Draft(model)
    save_file(first.tensors(), tmp_path / "eagle.safetensors")
    second = script.Draft(model)
    assert not torch.equal(second.fc.weight, first.fc.weight.bfloat16())
    second.start_from(tmp_path)
    tensors = first.tensors()
    assert all(torch.equal(value, tensors[name]) for name, value in second.tensors().items())


def test_guesses_count_behind_what_the_model_was_given(
    script: ModuleType, folder: Path, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are gone on from at their first tokens, prompts as a whole; long prompts are left."""
    import eagle_windows
    import torch

    given: list[list[int]] = []

    def own_windows(artifact: Path, beginnings: list[list[int]], size: int) -> Any:
        given.extend(beginnings)
        return torch.tensor([[*ids, *[9] * (size - len(ids))] for ids in beginnings])

    monkeypatch.setattr(eagle_windows, "own_windows", own_windows)
    monkeypatch.setattr(eagle_windows, "BEGINNING", 4)
    for name, texts in {"text": ["abcdefgh" * 9], "prompts": ["ab", "ab" * 99]}.items():
        rows = [json.dumps({"name": name, "text": text}) for text in texts]
        (tmp_path / name).write_text("\n".join(rows))
    arguments = argparse.Namespace(
        text=[tmp_path / "text"],
        prompts=[tmp_path / "prompts"],
        source=[],
        exclude=[],
        own=tmp_path,
        model=folder,
        tokens=16,
        window=8,
        batch=2,
    )
    windows = eagle_windows.prepare(model, arguments, tmp_path)
    lengths = [len(ids) for ids in given]
    assert lengths[:-1] == [4, 4]
    assert lengths[-1] <= 6
    ends = sorted(int((row != 9).sum()) - 1 for row in windows.tokens)
    assert sorted(windows.begins.tolist()) == ends == sorted(n - 1 for n in lengths)
    assert torch.equal(windows.counts().sum(1), 8 - windows.begins)
    kept = eagle_windows.prepare(model, arguments, tmp_path)
    assert torch.equal(kept.hidden, windows.hidden)
    assert torch.equal(kept.tokens, windows.tokens)
