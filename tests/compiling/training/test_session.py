"""A command that was stopped goes on when it is given again, and ends as if it had not been."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from optc.compiling.training import session
from optc.compiling.training.batches import Pool
from optc.compiling.training.distill import distill
from optc.errors import InputError
from optc.system.options.training_options import DistillOptions
from tests.compiling.training.test_distill import QUICK, recipe

__all__ = ["recipe"]  # a fixture


class StoppedError(Exception):
    pass


def stop(stage: str, done: int, total: int) -> None:
    if stage.startswith("distill") and done == 7:
        raise StoppedError


def test_the_same_command_goes_on_where_it_was(source: Path, text: Path, recipe: Path) -> None:
    whole, again = (
        DistillOptions(text=[str(text)], output=text.parent / name, recipe=recipe, **QUICK)
        for name in ("whole", "again")
    )
    distill(source, whole)
    with pytest.raises(StoppedError):
        distill(source, again, progress=stop)
    assert (text.parent / "again.checkpoints").is_dir()
    with pytest.raises(InputError, match=r"again\.checkpoints: holds .* with other settings"):
        distill(source, replace(again, rate="1e-3"))
    distill(source, again)
    left, right = (load_file(text.parent / n / "model.safetensors") for n in ("whole", "again"))
    assert left.keys() == right.keys()
    assert all((left[name] == right[name]).all() for name in left)


def test_a_tokenizer_of_another_model(
    source: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(np.full(900, 300, np.int32), np.zeros((2, 32), np.int32))
    monkeypatch.setattr(session, "read_pool", lambda *arguments: pool)
    asked = DistillOptions(text=[str(text)], output=text.parent / "o", **QUICK)
    with pytest.raises(InputError, match="the tokenizer gives ids beyond the 264"):
        distill(source, asked)
