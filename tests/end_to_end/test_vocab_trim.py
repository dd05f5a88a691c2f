"""A vocabulary trimmed by its recipe, on a small trained model, through compile and generation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import safetensors.numpy

import optc
from optc.artifact.artifact import Artifact
from optc.compiling.recipes.recipe import load_recipe
from optc.errors import InputError
from optc.importer.import_model import import_model
from optc.ir.linear import find_linears
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.prune.structured.cut import given_rows
from optc.runtime.metrics.engine_metrics import EngineMetrics
from tests.end_to_end.test_main_job import ROOT, TEXT
from tests.end_to_end.test_pruned import save_adapter
from tests.support.drafts.heads import write_heads, write_layer
from tests.support.ragged import run_dense

MODEL = ROOT / "examples/models/pycode-draft"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
PROMPT = "def fib(n):\n    "
GREEDY = optc.SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
RECIPE = """name: trimmed
backend: tvm
pipeline: [canonicalize, vocab-trim, fuse-qkv, fuse-gate-up, kv-cache, fuse-residual-norm,
  fuse-rotary]
gates: {kl_mean: 1.0e-6, kl_p99: 1.0e-5, top1_agreement: 0.999, prefill_speedup: null}
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the gates; the recipe lies beside it."""
    folder = tmp_path_factory.mktemp("trimmed")
    (folder / "trimmed.yaml").write_text(RECIPE)
    path = folder / "text.jsonl"
    path.write_text("".join(TEXT.read_text().splitlines(keepends=True)[:8]))
    return path


@pytest.fixture(scope="module")
def artifact(text: Path) -> Artifact:
    """In float32, so that the gates hold the engine to the source's own numbers."""
    return optc.compile(
        MODEL,
        text.parent / "trimmed.yaml",
        text.parent / "a",
        calibration=CALIBRATION,
        eval_text=text,
        backend="onnxruntime",
    )


def dense_source() -> ir.Model:
    """The model in dense form."""
    model = import_model(MODEL).model
    Pipeline(load_recipe("fp32").pipeline.passes[:1]).run(model)
    return model


def of_the_text(text: Path, name: str, **options: object) -> Artifact:
    """Without the tokens that the text of the gates has not."""
    recipe, output = text.parent / "trimmed.yaml", text.parent / name
    texts = {"calibration": text, "eval_text": text}
    return optc.compile(MODEL, recipe, output, no_gates=True, **texts, **options)


@pytest.fixture(scope="module")
def adapted(text: Path) -> Artifact:
    """With room for an adapter, heads and a layer that draft, by a backend that has them."""
    heads, layer = text.parent / "heads", text.parent / "layer"
    heads.mkdir()
    write_heads(heads, 2, 128)
    write_layer(layer, dense_source())
    more = {"adapters": "max=1,rank=16", "medusa": heads, "eagle": layer}
    return of_the_text(text, "adapted", **more)


@pytest.fixture(scope="module")
def drafted(text: Path) -> Artifact:
    """With a draft of one of the two layers."""
    return of_the_text(text, "drafted", backend="onnxruntime", draft="self:depth=0.5")


def kept_ids(artifact: Artifact) -> list[int]:
    """The source's id of each token."""
    found: list[int] = json.loads((artifact.path / "tokenizer/kept_ids.json").read_text())
    return found


def test_text_in_and_out_is_text_and_the_source_agrees(artifact: Artifact, tmp_path: Path) -> None:
    """The engine's text is one that the source would continue likewise, token for token."""
    report = artifact.report()
    facts = report["vocabulary"]
    assert facts["kept"] < 0.95 * facts["tokens"]
    assert facts["heldout_respelled"] < 0.03
    assert all(gate["passed"] is not False for gate in report["gates"])
    with optc.load(artifact.path, kv_memory="16MiB") as engine:
        found = engine.generate([PROMPT], GREEDY)[0]
        assert engine.tokenizer is not None
        assert engine.tokenizer.decode(engine.tokenizer.encode(PROMPT)) == PROMPT
    kept = kept_ids(artifact)
    plain = optc.compile(MODEL, "fp32", tmp_path / "plain", backend="onnxruntime", no_gates=True)
    with optc.load(plain.path, kv_memory="16MiB") as engine:
        whole = engine.generate([PROMPT], GREEDY)[0]
    assert set(whole.token_ids) <= set(kept), "what the source says is of the domain"
    assert [kept[one] for one in found.token_ids] == list(whole.token_ids)
    assert found.text == whole.text


def drafted_like_plain(artifact: Artifact, prompt: str, speculate: str) -> EngineMetrics:
    """Metrics of decoding with drafts, whose tokens are plain decoding's."""
    found = []
    for options in ({}, {"speculate": speculate, "num_speculative_tokens": 3}):
        with optc.load(artifact.path, kv_memory="16MiB", **options) as engine:
            found.append(engine.generate([prompt], GREEDY)[0].token_ids)
            metrics = engine.metrics()
    assert found[0] == found[1]
    return metrics


@pytest.mark.parametrize("speculate", ["ngram", "draft"])
def test_drafts_change_nothing(drafted: Artifact, speculate: str) -> None:
    """The draft made of the target has the tokens that stay, too."""
    prompt = "for i in range(10):\n    for i in range("
    assert drafted_like_plain(drafted, prompt, speculate).accepted_tokens > 0


@pytest.mark.parametrize("speculate", ["medusa", "eagle"])
def test_what_reads_hidden_states_names_tokens_that_stay(adapted: Artifact, speculate: str) -> None:
    """It shares the head, and the embedding, of what was trimmed."""
    assert drafted_like_plain(adapted, PROMPT, speculate).drafted_tokens > 0


def source_logits(added: dict[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    """Of the next token [V], by the whole model whose weights have an adapter's products added."""
    model = dense_source()
    for one in find_linears(model):
        if one.name in added:
            rows = one.weight.read_rows(0, one.weight.rows_shape[0]) + added[one.name]
            one.initializer.const_value = given_rows(one.weight, rows)
    return run_dense(model, tokens)[-1]


def test_an_adapter_of_the_source_says_the_same(adapted: Artifact, tmp_path: Path) -> None:
    """Its layers are all there, and of the source's next tokens those that stay are meant."""
    added, kept = save_adapter(tmp_path, adapted), kept_ids(adapted)
    assert len(added) == 2 * 7
    params = replace(GREEDY, max_tokens=1)
    with optc.load(adapted.path, kv_memory="16MiB") as engine:
        assert engine.tokenizer is not None
        prompt = [kept[token] for token in engine.tokenizer.encode(PROMPT)]
        engine.load_adapter("one", tmp_path)
        plain, found = (
            engine.generate([PROMPT], params, adapter=name)[0].token_ids for name in (None, "one")
        )
    assert found == (int(source_logits(added, prompt)[kept].argmax()),)
    assert found != plain


@pytest.mark.parametrize(
    ("layer", "named", "message"),
    [
        ("lm_head", "lora_A.weight", "it adapts lm_head"),
        (
            "model.embed_tokens",
            "lora_embedding_A",
            r"model\.embed_tokens\.lora_embedding_[AB] is none",
        ),
    ],
)
def test_an_adapter_of_what_was_trimmed_is_refused(
    adapted: Artifact, tmp_path: Path, layer: str, named: str, message: str
) -> None:
    """Head and embedding have other rows now."""
    halves = named, named.replace("A", "B")
    shapes = (4, 128), (4096, 4)
    tensors = {f"{layer}.{n}": np.ones(s, np.float32) for n, s in zip(halves, shapes, strict=True)}
    safetensors.numpy.save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": []}'
    )
    with (
        optc.load(adapted.path, kv_memory="16MiB") as engine,
        pytest.raises(InputError, match=message),
    ):
        engine.load_adapter("one", tmp_path)


def test_a_draft_of_another_folder_is_refused(text: Path, tmp_path: Path) -> None:
    """Its ids are those of the whole vocabulary."""
    with pytest.raises(InputError) as caught:
        optc.compile(
            MODEL,
            text.parent / "trimmed.yaml",
            tmp_path / "a",
            calibration=CALIBRATION,
            eval_text=text,
            backend="onnxruntime",
            draft=MODEL,
        )
    assert "trim" in str(caught.value)
    assert not (tmp_path / "a").exists()
