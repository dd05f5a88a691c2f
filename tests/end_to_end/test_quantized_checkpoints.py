"""Checkpoints that are quantized already say what their own readers make of them, in few bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from gguf import GGMLQuantizationType as Kind

from tests.support.gguf_files import of_kind, write_llama
from tests.support.given_checkpoints import PYCODE, continuations, quantized, same_tokens

#: What becomes of the weights of each type with `int8-fused`.
GGUF = {
    Kind.Q4_0: {"int4 groups of 32 as given": 24, "int8 groups of 32 as given": 1},
    Kind.Q8_0: {"int8 groups of 32 as given": 25},
    # blocks of 256 do not divide rows of 384, which converters then write as Q5_0
    Kind.Q4_K: {"int8 groups of 32 as given": 19, "int8 per channel": 6},
}
SHARED = {"embedding shares the head": 1}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("kind", GGUF, ids=lambda kind: kind.name)
def test_gguf(kind: Kind, tmp_path: Path) -> None:
    file = write_llama(PYCODE, tmp_path / "pycode.gguf", of_kind(kind))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=file.name, dtype=torch.float32
    )
    model, report = quantized(file)
    assert report.details == {**GGUF[kind], **SHARED}
    assert not [node for node in model.graph if node.op_type == "MatMul"], "a layer stays float"
    again = [one for one in report.warnings if "in Q4_K are quantized again" in one]
    assert len(again) == (kind == Kind.Q4_K)
    assert same_tokens(model, continuations(theirs))
