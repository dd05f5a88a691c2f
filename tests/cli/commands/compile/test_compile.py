"""`optc compile` end to end with a stub engine: what it writes, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from optc.artifact.artifact import Artifact
from optc.compiling.resolving.preflight import check_config
from optc.errors import InputError, UnsupportedError
from optc.importer import import_model as importer
from optc.importer.imported import ImportedModel
from optc.importer.tokenizer_files import TOKENIZER_FILES
from tests.cli.conftest import Optc, nothing_left
from tests.importer.hub_server import hub
from tests.support.drafts.heads import write_heads
from tests.support.stub import StubBackend

REPORT_KEYS = {
    "artifact",
    "digest",
    "passes",
    "gates",
    "engines",
    "storage",
    "peak_anon_bytes",
    "seconds",
    "decisions",
}


def test_json_has_the_promised_keys_and_the_artifact_opens(
    compile_tiny: Optc, tmp_path: Path
) -> None:
    value = compile_tiny("--json").json
    assert set(value) == REPORT_KEYS | {"schema", "warnings"}
    artifact = Artifact.open(tmp_path / "out/a")
    assert value["artifact"] == str(tmp_path / "out/a")
    assert value["digest"] == artifact.digest
    assert [p["name"] for p in value["passes"]][:3] == ["canonicalize", "latent-kv", "fuse-qkv"]
    assert all(set(p) >= {"name", "count", "seconds"} for p in value["passes"])
    assert value["peak_anon_bytes"] > 10_000_000
    assert value["seconds"] > 0
    assert os.listdir(tmp_path / "out") == ["a"]


def test_manifest_states_source_recipe_passes_engine_and_tokenizer(
    compile_tiny: Optc, stub: StubBackend, tmp_path: Path
) -> None:
    assert compile_tiny("--target", "x86-64-v3", "--max-context", "48").code == 0
    manifest = Artifact.open(tmp_path / "out/a").manifest
    assert (manifest.name, manifest.source.family) == ("tiny", "llama")
    assert manifest.source.config["hidden_size"] == 32
    assert manifest.recipe["name"] == "fp32"
    assert manifest.pipeline.startswith("canonicalize,latent-kv,fuse-qkv,")
    assert next(p for p in manifest.passes if p.name == "kv-cache").count == 1
    engine = manifest.engines[0]
    assert (engine.backend, engine.target.name, engine.spec.max_context) == (
        "stub",
        "x86-64-v3",
        48,
    )
    assert manifest.tokenizer is not None
    assert (manifest.tokenizer.bos_token_id, manifest.tokenizer.eos_token_ids) == (0, (1,))
    assert manifest.tokenizer.add_bos
    assert manifest.packages["onnx-ir"]
    assert [f.path for f in manifest.files] == [
        "engines/target/engine.bin",
        "engines/target/weights.bin",
        "tokenizer/chat_template.jinja",
        "tokenizer/tokenizer.json",
    ]
    assert [options.max_context for _, options in stub.built] == [48]


def test_two_compiles_write_the_same_manifest(compile_tiny: Optc, tmp_path: Path) -> None:
    first = compile_tiny("--json").json
    second = compile_tiny("--force", "--json").json
    assert first["digest"] == second["digest"]
    assert not any(tmp_path.rglob(".*"))


def test_an_ungated_artifact_says_so(compile_tiny: Optc, tmp_path: Path) -> None:
    value = compile_tiny("--json").json
    assert any("the gates were switched off" in warning for warning in value["warnings"])
    assert {g["measured_on"] for g in value["gates"]} == {"none"}
    assert {g["passed"] for g in value["gates"]} == {None}
    assert Artifact.open(tmp_path / "out/a").manifest.gated is False


def test_dump_dir_gets_the_graph_after_every_pass(compile_tiny: Optc, tmp_path: Path) -> None:
    assert compile_tiny("--dump-dir", tmp_path / "dump").code == 0
    names = sorted(path.name for path in (tmp_path / "dump").iterdir())
    assert names[0] == "00-canonicalize.onnx.txt"
    assert len(names) == 7


def test_prints_of_libraries_do_not_reach_stdout(
    compile_tiny: Optc, stub: StubBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noisy() -> str:
        print("from Python")
        os.write(1, b"from C\n")
        return ""

    monkeypatch.setattr(stub, "available", noisy)
    outcome = compile_tiny("--json")
    assert set(outcome.json) == REPORT_KEYS | {"schema", "warnings"}
    assert "from Python" in outcome.err
    assert "from C" in outcome.err


def test_existing_output_needs_force_and_is_refused_at_once(
    compile_tiny: Optc, stub: StubBackend, tmp_path: Path
) -> None:
    assert compile_tiny().code == 0
    before = (tmp_path / "out/a/manifest.json").read_bytes()
    outcome = compile_tiny()
    assert outcome.code == 2
    assert "already exists (--force replaces it, -o names another)" in outcome.err
    assert len(stub.built) == 1
    assert (tmp_path / "out/a/manifest.json").read_bytes() == before


def test_a_disk_that_fills_up_in_the_build(
    compile_tiny: Optc, stub: StubBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(stub, "build", full)
    outcome = compile_tiny()
    assert outcome.code == 2
    assert f"error: {tmp_path / 'out/a'}: cannot be written: the disk is full" in outcome.err
    assert "Traceback" not in outcome.err
    assert nothing_left(tmp_path)


def test_a_disk_that_is_too_small_is_refused_before_the_build(
    compile_tiny: Optc, stub: StubBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    outcome = compile_tiny()
    assert outcome.code == 2
    assert "the disk is full" in outcome.err
    assert "100 are free" in outcome.err
    assert stub.built == []
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "fp23"], "--recipe: unknown recipe 'fp23' (did you mean 'fp32'?)"),
        (["--target", "x86-64-v5"], "--target: unknown target 'x86-64-v5' (did you mean 'x86-64-v"),
        (["--backend", "tvn"], "--backend: unknown backend 'tvn' (did you mean 'tvm'?)"),
        (["--set", "kv-cash.x=1"], "--set: unknown pass 'kv-cash' (did you mean 'kv-cache'?)"),
        (["--set", "kv-cache.x=1"], "pass kv-cache: unknown option 'x'"),
        (["--gate", "kl=1"], "--gate: unknown gate 'kl'"),
        (
            ["--max-ram", "lots"],
            "--max-ram: 'lots' is not a size (write a size such as 2GiB; K, M, G are",
        ),
        (["--eval-text", "absent.txt"], "--eval-text: no such file: absent.txt"),
        (["--calibration", "absent.txt"], "--calibration: no such file: absent.txt"),
        (["--adapters", "max=0"], "pass adapters: max=0 is not possible (from 1 to 256)"),
        (["--adapters", "rank=257"], "pass adapters: rank=257 is not possible (from 1 to 256)"),
        (["--max-context", "65"], "--max-context: 65 tokens exceed the model's own context of 64"),
    ],
)
def test_unknown_names_and_bad_values(
    compile_tiny: Optc, tmp_path: Path, arguments: list[str], message: str
) -> None:
    outcome = compile_tiny(*arguments)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith(f"error: {message}")
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-context", "65"], "--max-context: 65 tokens exceed the model's own context of 64"),
        (["--self-draft", "1"], "--self-draft: 1 of 1 layers (a model of one layer has no first"),
        (
            ["--adapters", "max=2,rank=4", "--backend", "onnxruntime"],
            "--adapters: onnxruntime-native: slots have no room for LoRA adapters (leave it or",
        ),
        (
            ["--medusa", "HEADS", "--backend", "onnxruntime"],
            "--medusa: onnxruntime-native: slots have no room for Medusa heads (leave it or that",
        ),
    ],
)
def test_what_the_config_or_the_engine_rules_out_is_refused_before_the_import(
    optc: Optc,
    no_import: None,
    tiny_model: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "heads").mkdir()
    write_heads(tmp_path / "heads", 2, 32)
    given = [str(tmp_path / "heads") if text == "HEADS" else text for text in arguments]
    options = ("-o", tmp_path / "out/a", "--recipe", "fp32", "--no-gates", *given)
    outcome = optc("compile", tiny_model, *options)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith(f"error: {message}")
    assert nothing_left(tmp_path)


def test_text_models_within_others_and_configs_without_numbers(tmp_path: Path) -> None:
    for config in ("{}", "[]", '{"max_position_embeddings": "many"}', "{"):
        (tmp_path / "config.json").write_text(config)
        check_config(tmp_path, 10**9, 10**9)
    text = {"max_position_embeddings": 32, "num_hidden_layers": 4}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": text}))
    check_config(tmp_path, 32, 3)
    for asked in ((33, None), (None, 4), (None, 0)):
        with pytest.raises(InputError):
            check_config(tmp_path, *asked)


def test_a_backend_that_cannot_build_here_is_exit_code_3(
    compile_tiny: Optc, stub: StubBackend, tmp_path: Path
) -> None:
    stub.reason = "no C++ compiler was found; install g++ or ziglang"
    outcome = compile_tiny()
    assert outcome.code == 3
    assert outcome.err == (
        "error: backend stub: no C++ compiler was found; install g++ or ziglang\n"
    )
    assert nothing_left(tmp_path)


def test_an_operator_that_the_backend_cannot_lower(
    compile_tiny: Optc, stub: StubBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedError("Einsum cannot be lowered", where="node_7", hint="write MatMul")

    monkeypatch.setattr(stub, "build", refuse)
    outcome = compile_tiny("--json")
    assert outcome.code == 2
    assert outcome.json["error"] == {
        "kind": "unsupported",
        "message": "Einsum cannot be lowered",
        "where": "node_7",
        "hint": "write MatMul",
    }
    assert nothing_left(tmp_path)


def test_an_evaluation_text_without_a_tokenizer_is_refused(
    optc: Optc, stub: StubBackend, tiny_model: Path, tmp_path: Path
) -> None:
    bare = shutil.copytree(tiny_model, tmp_path / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bare / name).unlink()
    text = tmp_path / "t.txt"
    text.write_text("some text")
    outcome = optc("compile", bare, "-o", tmp_path / "out/a", "--eval-text", text)
    assert outcome.code == 2
    assert "the model has no tokenizer.json" in outcome.err
    assert nothing_left(tmp_path)


def test_the_default_output_is_named_after_model_and_recipe(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = optc("compile", tiny_model, "--no-gates", "--json")
    assert outcome.json["artifact"] == "artifacts/tiny-int8-fused"
    assert json.loads((tmp_path / "artifacts/tiny-int8-fused/manifest.json").read_text())


def test_a_link_gives_the_default_output_its_own_name(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to(tiny_model)
    assert optc("compile", "link", "--no-gates", "--json").json["artifact"] == (
        "artifacts/link-int8-fused"
    )


def test_a_model_of_the_hugging_face_cache_is_found_and_named(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    root = Path("models--acme--small")
    (root / "refs").mkdir(parents=True)
    (root / "refs/main").write_text("abc123")
    (root / "snapshots").mkdir()
    (root / "snapshots/abc123").symlink_to(tiny_model)
    for source in (root, root / "snapshots/abc123"):
        outcome = optc("compile", source, "--no-gates", "--force", "--json")
        assert outcome.json["artifact"] == "artifacts/small-int8-fused"


def test_a_model_of_the_hub_without_a_network(
    optc: Optc, stub: StubBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    outcome = optc("compile", "acme/small", "--no-gates")
    assert outcome.code == 3
    assert "hf download acme/small --local-dir small" in outcome.err
    page = optc("compile", "https://huggingface.co/acme/small", "--no-gates")
    assert page.code == 2
    assert "(of the Hugging Face Hub: acme/small)" in page.err


def test_models_of_the_hub_by_name(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with hub(tiny_model, tmp_path / "cache") as served:
        call = ("compile", "acme/tiny@v1", "--recipe", "fp32", "--no-gates")
        refused = optc(*call, "--set", "nothing.x=1")
        assert (refused.code, "model.safetensors" in served.taken) == (2, False)
        outcome = optc(*call, "--json")
        assert outcome.json["artifact"] == "artifacts/tiny-fp32"
        assert "· download" in outcome.err
        assert "model.safetensors" in served.taken
        assert optc("plan", "acme/tiny", "--recipe", "fp32", "--backends", "stub").code == 0
        text = tmp_path / "t.txt"
        text.write_text("some words to be scored")
        scored = ("eval", "artifacts/tiny-fp32", "--text", text, "--reference", "acme/tiny")
        assert optc(*scored, "--json").json["kl_mean"] > 0
        assert served.taken.count("model.safetensors") == 1
        missing = optc("compile", "acme/none", "--no-gates")
        assert (missing.code, "no such model on the Hugging Face Hub" in missing.err) == (2, True)


def test_the_store_is_where_artifacts_go(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPTC_STORE", str(tmp_path / "store"))
    assert optc("compile", tiny_model, "--recipe", "fp32", "--no-gates").code == 0
    (found,) = optc("list", "--json").json["artifacts"]
    assert found["path"] == str(tmp_path / "store" / f"{tiny_model.name}-fp32")


def test_what_is_not_followed_is_a_warning_everywhere(
    optc: Optc,
    stub: StubBackend,
    imported_tiny: ImportedModel,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the summary, in the JSON and in the report."""
    folder = tmp_path / "tiny"
    shutil.copytree(tiny_model, folder)
    (folder / "generation_config.json").write_text('{"num_beams": 4, "top_p": 0.9}')
    (folder / "chat_template.jinja").write_text("{{ messages | nope }}")
    files = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]

    def import_model(source: Path, *, allow_remote_code: bool = False) -> ImportedModel:
        model = imported_tiny.model.clone()
        return replace(imported_tiny, model=model, folder=folder, tokenizer_files=files)

    monkeypatch.setattr(importer, "import_model", import_model)
    call = ("compile", folder, "-o", tmp_path / "a", "--recipe", "fp32", "--no-gates")
    wanted = [
        "settings of generation_config.json are not followed: num_beams=4",
        "the chat template fails: No filter named 'nope'.: 4 of 4 conversations that were tried "
        "cannot be rendered",
    ]
    value, artifact = optc(*call, "--json").json, Artifact.open(tmp_path / "a")
    for warnings in (value["warnings"], artifact.report()["warnings"]):
        assert [text for text in warnings if text in wanted] == wanted
    assert artifact.manifest.generation == {"top_p": 0.9}
    err = optc(*call, "--force").err
    assert all(f"warning: {text}" in err for text in wanted)
