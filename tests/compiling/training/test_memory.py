"""What trainings and backward passes are predicted to take, without PyTorch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from optc.compiling.training import memory
from optc.compiling.training.memory import (
    BESIDE_LORA,
    ROUNDED,
    all_width,
    backward_bytes,
    check_training,
    kept_width,
    training_bytes,
    weight_count,
    windows_together,
)
from optc.errors import InputError
from tests.support.dense_models import FF, D, V, dense_model

#: Weights of a layer, and values that its nodes give for a token; this model states no shape of
#: what its attention gives.
LAYER = 2 * D * 64 + 2 * D * 32 + 3 * D * FF + 2 * D
VALUES = 6 * D + 2 * 64 + 3 * 32 + 5 * FF


def test_weights_of_a_tied_head_count_once() -> None:
    assert weight_count(dense_model(1)) == LAYER + V * D + D
    assert weight_count(dense_model(3)) - weight_count(dense_model(1)) == 2 * LAYER


@pytest.mark.parametrize("softcap", [0.0, 8.0])
def test_values_are_those_ahead_of_the_head(softcap: float) -> None:
    one, three = (dense_model(layers, softcap=softcap) for layers in (1, 3))
    assert kept_width(three) - kept_width(one) == 2 * VALUES
    assert all_width(one) - kept_width(one) == (4 if softcap else 1) * V


def test_a_backward_pass_takes_its_weights_and_the_values_of_its_tokens() -> None:
    few, many, deep = (
        backward_bytes(dense_model(layers), tokens)
        for layers, tokens in ((1, 100), (1, 200), (3, 100))
    )
    kept = kept_width(dense_model(1))
    assert many - few == pytest.approx(100 * (1.35 * 4 * kept + 16 * V), abs=2)
    assert deep - few == pytest.approx(2 * (4 * LAYER + 100 * 1.35 * 4 * VALUES), abs=2)


def test_logits_are_those_of_a_slice_of_rows() -> None:
    model = dense_model(1)
    rows = (1 << 22) // V + 1  # more than fit in a slice
    few, many = (backward_bytes(model, tokens) for tokens in (rows, 2 * rows))
    assert many - few == pytest.approx(1.35 * 4 * rows * kept_width(model), abs=2)


def test_a_training_takes_its_process_and_sixteen_bytes_a_trained_weight() -> None:
    few, many = dense_model(1), dense_model(3)
    taken = training_bytes(few, many, 32, 4)
    shared = backward_bytes(few, 128) - 4 * weight_count(few)
    assert taken == (306 << 20) + shared + 16 * weight_count(few) + 4 * weight_count(many)
    assert training_bytes(few, many, 32, 4, ROUNDED) - taken == 9 * weight_count(few)
    assert taken - training_bytes(few, many, 32, 4, BESIDE_LORA) == 4 * weight_count(few)


def test_windows_run_together_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    model = dense_model(1)
    monkeypatch.setattr(memory, "ACTIVATION_BYTES", 2 * 32 * 4 * all_width(model))
    assert windows_together(32, all_width(model)) == 2
    assert windows_together(1000, all_width(model)) == 1
    two, four, eight = (training_bytes(model, model, 32, batch) for batch in (2, 4, 8))
    assert two == four == eight


def test_a_training_beyond_the_limit_is_refused() -> None:
    model = dense_model(1)
    needed = training_bytes(model, model, 32, 4)
    check_training(needed, 0)
    check_training(needed, needed)
    with pytest.raises(InputError) as caught:
        check_training(needed, needed - 1)
    assert str(caught.value) == (
        f"--max-ram: the training is predicted to need {needed:,} bytes of memory, but "
        f"{needed - 1:,} are allowed (allow more, or give a smaller --batch)"
    )


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, optc.compiling.drafts.distilled; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
