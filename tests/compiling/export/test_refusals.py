"""What cannot be exported is refused by name, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs, to_builtins

from optc import registry
from optc.artifact.artifact import Artifact
from optc.compiling.export.export import export_artifact
from optc.errors import InputError, OptcError, UnsupportedError
from tests.artifact.toy import forge
from tests.compiling.export.conftest import Made
from tests.compiling.export.engines import GraphWeight, write_giving
from tests.compiling.export.pass_entries import pass_entry
from tests.runtime.support.artifacts import ToyBackend

FORMS = ("gguf", "compressed-tensors", "hf")


@pytest.fixture
def qwen(kinds: dict[str, Made], monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(registry, "backend", {"toy": kinds["qwen3"].backend}.__getitem__)
    return kinds["qwen3"]


def refused(
    artifact: Artifact,
    output: Path,
    match: str,
    kind: type[OptcError] = UnsupportedError,
    form: Any = "gguf",
    engine: str | None = None,
) -> None:
    before = sorted(output.parent.iterdir()) if output.parent.is_dir() else []
    with pytest.raises(kind, match=match):
        export_artifact(artifact, form, output, engine)
    assert before == (sorted(output.parent.iterdir()) if output.parent.is_dir() else [])


@pytest.mark.parametrize("form", FORMS)
def test_outputs(qwen: Made, form: str, tmp_path: Path) -> None:
    output = tmp_path / "m.gguf"
    output.symlink_to(tmp_path / "nowhere")
    refused(qwen.artifact, output, "--output: .*is there already", InputError, form)
    lost = tmp_path / "no/m.gguf"
    refused(qwen.artifact, lost, "--output: there is no folder", InputError, form)


def test_a_gguf_file_is_called_so(qwen: Made, tmp_path: Path) -> None:
    refused(qwen.artifact, tmp_path / "m", r"'m' does not end in \.gguf", InputError)


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk(
    qwen: Made, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*paths: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    message = r"m\.gguf: cannot be written: No space left on device \(nothing was left behind"
    refused(qwen.artifact, tmp_path / "m.gguf", message, InputError, form)


def test_engines(qwen: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "m.gguf"
    message = "no target engine 'draft'.*it has target"
    refused(qwen.artifact, output, message, InputError, engine="draft")
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)
    message = "engine target: engines of the backend toy do not give their weights back.*for tvm"
    refused(qwen.artifact, output, message)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("adapters", "the engine has room for LoRA adapters"),
        ("prune-weights", "weights were pruned"),
        ("rotate", "it changes what weights stand for"),
        ("rotate-activations", "weights are rotated.*--set rotate-activations.block=0"),
        ("rotate-kv", "values are rotated.*--set rotate-kv.block=0"),
        ("quantize-weights{format=nf4}", "weights are codes of a table"),
    ],
)
def test_passes(qwen: Made, spec: str, reason: str, tmp_path: Path) -> None:
    passes = (pass_entry("fuse-qkv"), pass_entry(spec))
    artifact = replace(
        qwen.artifact, manifest=structs.replace(qwen.artifact.manifest, passes=passes)
    )
    message = f"pass {passes[1].name}: no checkpoint of the .*class: {reason}"
    refused(artifact, tmp_path / "m.gguf", message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"auto_map": {"AutoConfig": "c.C"}}, "its class is code of the model's folder"),
        ({"attention_bias": True}, "is no parameter of the model's class|no weights for"),
        ({"rms_norm_eps": "x"}, "config of toy in the manifest"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_configs(
    qwen: Made, change: dict[str, Any], message: str, form: str, tmp_path: Path
) -> None:
    source = qwen.artifact.manifest.source
    source = structs.replace(source, config={**source.config, **change})
    artifact = replace(
        qwen.artifact, manifest=structs.replace(qwen.artifact.manifest, source=source)
    )
    refused(artifact, tmp_path / "m.gguf", message, OptcError, form)


def test_settings_that_gguf_has_not(qwen: Made, tmp_path: Path) -> None:
    source = qwen.artifact.manifest.source
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    source = structs.replace(source, config={**source.config, "rope_parameters": rope})
    artifact = replace(
        qwen.artifact, manifest=structs.replace(qwen.artifact.manifest, source=source)
    )
    message = "the GGUF files that optc writes cannot say rope = .*--format compressed-tensors"
    refused(artifact, tmp_path / "m.gguf", message)


def test_weights(qwen: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, output = "model.layers.0.self_attn.o_proj.weight", tmp_path / "m.gguf"
    weights = dict(qwen.backend.weights)
    weight = weights.pop(f"{name}.quantized")
    monkeypatch.setattr(qwen.backend, "weights", weights)
    refused(qwen.artifact, output, f"{name}: the engine has no weights for 1 parameters")
    weights |= {f"{name}.quantized": weight, "heads.0.weight": GraphWeight(weight.rows((64, 512)))}
    refused(qwen.artifact, output, r"heads\.0\.weight: is no parameter of the model's class")


@pytest.mark.parametrize("form", FORMS)
def test_tokenizers(qwen: Made, form: Any, tmp_path: Path) -> None:
    config = qwen.artifact.manifest.source.config
    artifact = write_giving(tmp_path / "none", config, tokenizer=False)
    output = tmp_path / "m.gguf"
    if form == "gguf":
        refused(artifact, output, "the artifact has no tokenizer", InputError)
        other = write_giving(tmp_path / "other", config)
        file = other.path / "tokenizer/tokenizer.json"
        file.write_text(file.read_text().replace('"use_regex": true', '"use_regex": false'))
        refused(other, output, "GGUF has no name for this tokenizer .*gpt-2, smollm, llama-bpe")
        return
    export_artifact(artifact, form, output)
    assert sorted(one.name for one in output.iterdir()) == ["config.json", "model.safetensors"]


def test_what_the_manifest_forbids_is_refused_before_a_package_is_loaded(
    qwen: Made, tmp_path: Path
) -> None:
    passes = [to_builtins(pass_entry("rotate"))]
    artifact = shutil.copytree(qwen.artifact.path, tmp_path / "artifact")
    forge(artifact, lambda value: value.update(passes=passes))
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'gguf', 'safetensors', 'onnx_ir'):\n"
        "    sys.modules[name] = None\n"
        "from optc.artifact.artifact import Artifact\n"
        "from optc.compiling.export.choose import check_engine\n"
        f"check_engine(Artifact.open({str(artifact)!r}, verify='size'), None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pass rotate: no checkpoint of the model's class" in done.stderr, done.stderr
