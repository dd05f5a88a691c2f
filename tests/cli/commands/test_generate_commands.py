"""run, bench and eval, on an artifact of the toy engine."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from pathlib import Path

import pytest

from optc.importer import import_model as importer
from optc.importer.imported import ImportedModel
from optc.system.hardware.target import Target
from tests.cli.conftest import Optc
from tests.runtime.support.toy import ToyExecutable
from tests.support.stub import StubBackend

RUN_KEYS = {
    "text",
    "token_ids",
    "prompt_tokens",
    "output_tokens",
    "finish_reason",
    "ttft_ms",
    "tpot_ms",
}
FRAME = {"schema", "warnings"}


def test_run_json_has_the_promised_keys(optc: Optc, artifact: Path) -> None:
    value = optc(
        "run", artifact, "--prompt", "ab", "--max-tokens", "5", "--ignore-eos", "--json"
    ).json
    assert set(value) == RUN_KEYS | {"engine"} | FRAME
    names = {"name": "target", "backend": "stub", "target": "native"}
    assert value["engine"] == {**names, "rejected": []}
    assert value["prompt_tokens"] == 3  # BOS and two bytes
    assert len(value["token_ids"]) == value["output_tokens"] == 5
    assert value["finish_reason"] == "length"
    assert value["ttft_ms"] > 0


def test_run_streams_the_text_of_a_single_prompt(optc: Optc, artifact: Path) -> None:
    arguments = ("run", artifact, "--prompt", "ab", "--max-tokens", "5", "--ignore-eos")
    outcome = optc(*arguments)
    assert outcome.out == optc(*arguments, "--json").json["text"] + "\n"
    assert "3 prompt tokens, 5 new ones, first after" in outcome.err


def test_run_batches_several_prompts_in_their_order(optc: Optc, artifact: Path) -> None:
    rest = ("--max-tokens", "4", "--ignore-eos", "--json")
    both = optc("run", artifact, "--prompt", "ab", "--prompt", "xyz", *rest).json
    assert set(both) == {"results", "engine"} | FRAME
    alone = [optc("run", artifact, "--prompt", text, *rest).json for text in ("ab", "xyz")]
    assert [r["token_ids"] for r in both["results"]] == [r["token_ids"] for r in alone]
    text = optc("run", artifact, "--prompt", "ab", "--prompt", "xyz", "--max-tokens", "4").out
    assert text.index("── 'ab'") < text.index("── 'xyz'")


@pytest.mark.parametrize("more", [[], ["--prompt", "xyz"]])
def test_run_ends_at_its_timeout(optc: Optc, artifact: Path, more: list[str]) -> None:
    prompts = ["--prompt", "ab", *more]
    value = optc("run", artifact, *prompts, "--timeout", "1e-9", "--json").json
    for result in value.get("results", [value]):
        assert (result["finish_reason"], result["token_ids"]) == ("deadline", [])
    outcome = optc("run", artifact, *prompts, "--timeout", "1e-9")
    assert outcome.code == 0
    assert "0 new ones; ended by deadline" in outcome.err
    assert optc("run", artifact, *prompts, "--timeout", "0").code == 2


def test_run_reads_a_prompt_from_stdin(
    optc: Optc, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("ab"))
    value = optc("run", artifact, "--prompt", "-", "--max-tokens", "2", "--json").json
    assert value["prompt_tokens"] == 3
    outcome = optc("run", artifact, "--prompt", "-", "--prompt", "-")
    assert outcome.code == 2
    assert "stdin can be read once" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt", ""], "the prompt is empty"),
        (["--prompt", "x" * 100], "the context holds 64"),
        (["--prompt", "x", "--temperature", "-1"], "temperature=-1.0 is not allowed"),
        (["--prompt", "x", "--max-tokens", "0"], "max_tokens=0 is not allowed"),
        (["--prompt", "x", "--kv-memory", "lots"], "lots"),
    ],
)
def test_run_refuses_bad_requests(
    optc: Optc, artifact: Path, arguments: list[str], message: str
) -> None:
    outcome = optc("run", artifact, *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert optc("run", artifact, *arguments, "--json").json["error"]["message"]


def test_run_on_a_machine_without_the_needed_cpu_feature(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    future = Target("x86-64-v9", "cpu", ("avx2", "avx9000"))
    monkeypatch.setattr("optc.compiling.resolving.engines.parse_target", lambda *_: future)
    path = tmp_path / "a"
    arguments = ("-o", path, "--recipe", "fp32", "--target", "x86-64-v9", "--no-gates")
    assert optc("compile", tiny_model, *arguments).code == 0
    outcome = optc("run", path, "--prompt", "x")
    assert outcome.code == 3
    assert "it needs avx9000, which this CPU lacks" in outcome.err
    assert outcome.out == ""


def test_bench_json_has_the_promised_keys(optc: Optc, artifact: Path) -> None:
    rest = ("--output-tokens", "4", "--concurrency", "1,3", "--rounds", "1", "--json")
    value = optc("bench", artifact, *rest).json
    assert set(value) == {"target", "engine", "results", "rounds", "ceilings"} | FRAME
    assert value["target"] == "native"
    assert [r["concurrency"] for r in value["results"]] == [1, 3]
    first = value["results"][0]
    assert (first["prompt_tokens"], first["output_tokens"]) == (60, 4)
    assert set(first["tpot_ms"]) == {"p50", "p90", "p99"}
    assert first["prefill_tokens_per_s"] > 0
    assert first["decode_tokens_per_s"] > 0
    assert first["mbu"] is value["ceilings"] is None
    assert value["warnings"] == [
        "prompts have 60 tokens: more do not fit the context",
        "no MBU and MFU: bench: the backend stub measures no ceilings",
    ]


def test_bench_prints_a_table(optc: Optc, artifact: Path) -> None:
    rest = ("--prompt-tokens", "8", "--output-tokens", "4", "--concurrency", "2", "--rounds", "1")
    assert "8 prompt tokens, 4 new ones" in optc("bench", artifact, *rest).out
    outcome = optc("bench", artifact, "--concurrency", "1,zero")
    assert outcome.code == 2
    assert "--concurrency: '1,zero' is no list of counts (for example 1,8,16)" in outcome.err


def test_eval_gives_perplexity(optc: Optc, artifact: Path, tmp_path: Path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("def f(x):\n    return x\n" * 3)
    value = optc("eval", artifact, "--text", text, "--json").json
    assert set(value) >= {"tokens", "perplexity", "text", "convention"} | FRAME
    assert "kl_mean" not in value
    assert value["tokens"] > 60
    assert value["perplexity"] > 1
    assert value["text"] == "t.txt"
    assert "perplexity" in optc("eval", artifact, "--text", text).out


def test_eval_with_a_reference_adds_the_divergence(
    optc: Optc, artifact: Path, tiny_model: Path, tmp_path: Path
) -> None:
    text = tmp_path / "t.txt"
    text.write_text("some words to be scored")
    value = optc("eval", artifact, "--text", text, "--reference", tiny_model, "--json").json
    assert value["kl_mean"] > 0  # the toy engine is another model
    assert value["kl_p99"] >= value["kl_mean"]
    assert 0 <= value["top1_agreement"] < 1
    assert value["warnings"] == []


def test_eval_with_another_reference_warns(
    optc: Optc,
    artifact: Path,
    tiny_model: Path,
    imported_tiny: ImportedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = tmp_path / "t.txt"
    text.write_text("some words to be scored")

    def import_model(source: Path, *, allow_remote_code: bool = False) -> ImportedModel:
        model = imported_tiny.model.clone()
        return dataclasses.replace(imported_tiny, model=model, source_digest="c0ffee" + "0" * 58)

    monkeypatch.setattr(importer, "import_model", import_model)
    call = ("eval", artifact, "--text", text, "--reference", tiny_model)
    (warning,) = optc(*call, "--json").json["warnings"]
    assert warning.startswith(
        "tiny (digest c0ffee000000…) is not the model that the engine target was compiled from "
        f"(tiny, digest {imported_tiny.source_digest[:12]}…): "
    )
    assert f"warning: {warning}\n" in optc(*call).err


def test_eval_with_a_reference_of_another_vocabulary(
    optc: Optc, artifact: Path, tiny_model: Path, tmp_path: Path, no_import: None
) -> None:
    other = shutil.copytree(tiny_model, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "vocab_size": 512}))
    outcome = optc("eval", artifact, "--reference", other, "--json")
    assert outcome.code == 2
    assert outcome.json["error"]["where"] == str(other)
    assert (
        "the reference knows 512 tokens, the engine target 264" in outcome.json["error"]["message"]
    )


def test_eval_of_a_text_that_is_not_there(optc: Optc, artifact: Path) -> None:
    outcome = optc("eval", artifact, "--text", "absent.txt")
    assert outcome.code == 2
    assert "absent.txt: cannot read the text" in outcome.err


def test_run_takes_control_texts_for_tokens_if_asked_to(optc: Optc, artifact: Path) -> None:
    arguments = ("run", artifact, "--prompt", "a</s>", "--max-tokens", "1", "--json")
    assert optc(*arguments).json["prompt_tokens"] == 6  # BOS and five bytes
    assert optc(*arguments, "--parse-special").json["prompt_tokens"] == 3


def test_an_engine_that_dies_is_an_internal_error(
    optc: Optc, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(self: object, batch: object) -> None:
        raise ArithmeticError("the kernel broke")

    monkeypatch.setattr(ToyExecutable, "step", explode)
    outcome = optc("run", artifact, "--prompt", "a", "--json")
    assert outcome.code == 70
    assert outcome.json["error"]["kind"] == "engine"
    assert outcome.json["error"]["message"] == "the engine failed"
    assert "ArithmeticError: the kernel broke" in outcome.err
    assert "Traceback" in outcome.err
