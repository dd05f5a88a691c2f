"""Float weights of a GGUF file: a Hugging Face folder of what it holds, dequantized."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import quants
from safetensors.numpy import load_file

from benchmarks.inputs.real_models import catalogue, floats
from benchmarks.inputs.real_models.catalogue import Member, RealModel, Wheel
from optc.importer.checkpoint import checkpoint_files, read_checkpoint
from tests.support.checkpoints.gguf_files import of_kind, write_llama

PYCODE = Path(__file__).parents[4] / "examples/models/pycode"


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example as a GGUF file of 8 bits, in the place of all models of the catalogue."""
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "source"
    source.mkdir()
    write_llama(PYCODE, source / "m.gguf", of_kind(Kind.Q8_0))
    member = Member(Wheel("tiny==1.0", "0" * 64), "m.gguf", "m.gguf")
    model = RealModel("tiny", "gguf", "MIT", (member,), "a note")
    monkeypatch.setattr(catalogue, "MODELS", (model,))
    monkeypatch.setattr(floats, "real_model", lambda _: source)
    return source


def test_weights_are_what_the_blocks_say(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = floats.float_folder("tiny")
    found = load_file(folder / "model.safetensors")
    known = read_checkpoint(checkpoint_files(PYCODE))
    assert set(found) == set(known)
    for name, tensor in known.items():
        rows = tensor.read_rows(0, tensor.shape[0])
        if rows.ndim == 2:
            rows = quants.dequantize(quants.quantize(rows, Kind.Q8_0), Kind.Q8_0)
        np.testing.assert_array_equal(found[name], rows, err_msg=name)
        assert found[name].dtype == np.float32
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    assert (folder / "tokenizer.json").is_file()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast", "of all releases"
    monkeypatch.setattr(floats, "dequantize", None)
    assert floats.float_folder("tiny") == folder, "made once"
