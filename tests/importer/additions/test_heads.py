"""Folders of Medusa heads: their digest, and what of them is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from optc.errors import InputError
from optc.importer.additions.heads import CONFIG_FILE, WEIGHTS_FILE, digest_heads
from tests.support.drafts.heads import write_heads


@pytest.fixture
def heads(tmp_path: Path) -> Path:
    folder = tmp_path / "heads"
    folder.mkdir()
    write_heads(folder, 2, 8)
    return folder


def test_the_digest_depends_on_contents_only(heads: Path, tmp_path: Path) -> None:
    digest = digest_heads(heads)
    assert digest == digest_heads(shutil.copytree(heads, tmp_path / "copy"))
    (heads / "README.md").write_text("of no matter")
    assert digest == digest_heads(heads)
    config = json.loads((heads / CONFIG_FILE).read_text())
    (heads / CONFIG_FILE).write_text(json.dumps({**config, "auto_map": {"AutoModel": "evil.Evil"}}))
    assert digest != digest_heads(heads)  # only read: nothing of it is ever run


@pytest.mark.parametrize("name", [CONFIG_FILE, WEIGHTS_FILE])
def test_missing_files_are_named(name: str, heads: Path) -> None:
    (heads / name).unlink()
    with pytest.raises(InputError, match=f"no {name}") as caught:
        digest_heads(heads)
    assert "train_medusa.py" in caught.value.hint


def test_weights_are_finite(heads: Path) -> None:
    tensors = load_file(heads / WEIGHTS_FILE)
    tensors["1.0.linear.bias"][3] = torch.nan
    save_file(tensors, heads / WEIGHTS_FILE)
    with pytest.raises(InputError, match="the weight holds NaN or infinities") as caught:
        digest_heads(heads)
    assert caught.value.where == f"{heads / WEIGHTS_FILE}: 1.0.linear.bias"
