"""Tiny decoders with attention sinks, with ALiBi that is spelled out, with short convolutions or
recurrences, and with latents: transformers' tokens, and the same tokens in every combination of
chunks, batch mates, prefix hits and drafts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optc
from optc import registry
from optc.artifact.artifact import Artifact
from optc.errors import UnsupportedError
from optc.runtime.executable.executable import StepInterface
from tests.backends.tvm.engine_driver import EngineDriver
from tests.end_to_end.test_families import greedy
from tests.importer.decoders import VOCABULARY, build, config_of, save
from tests.support.shared import made_once
from tests.support.trees import path_to, random_parents

NEW = 20
SPECULATION = ("off", "ngram", "lookahead")
#: Kind and options.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "sinks": (
        "GraniteSWA",
        {"hidden_size": 64, "num_hidden_layers": 2, "sliding_window": 8, "intermediate_size": 96},
    ),
    "alibi": ("Mpt", {"hidden_size": 64, "num_hidden_layers": 2, "max_seq_len": 128}),
    "convolutions": (
        "Lfm2",
        {
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "layer_types": ["conv", "full_attention", "conv"],
        },
    ),
    "delta rules": (
        "Qwen3_5Text",
        {
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "head_dim": 16,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
        },
    ),
    "state spaces": (
        "GraniteMoeHybrid",
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"],
            "num_local_experts": 0,
            "shared_intermediate_size": 96,
            "mamba_n_heads": 4,
            "mamba_d_head": 32,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
            "position_embedding_type": "rope",
        },
    ),
    "latents": (
        "MiniCPM3",
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "intermediate_size": 96,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "q_lora_rank": 24,
            "kv_lora_rank": 24,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
        },
    ),
}
#: Those whose rows may form a tree.
TREES = ("sinks", "alibi", "latents")
#: Those whose states cannot take tokens back: drafts that hold are computed again.
RECURRENT = ("convolutions", "delta rules", "state spaces")
RANDOM = np.random.default_rng(11)
#: Repetitive, so that something is drafted; the first is a prefix of the second.
PROMPTS = [(RANDOM.integers(3, VOCABULARY, 9).tolist() * 4)[:length] for length in (20, 33)]
STRANGERS = RANDOM.integers(3, VOCABULARY, (2, 7)).tolist()


def compiled(factory: pytest.TempPathFactory, name: str) -> Path:
    kind, options = MODELS[name]

    def make(folder: Path) -> Path:
        model = save(build(config_of(kind, **options)), folder / "model")
        sets = ["kv-cache.tree=true"] if name in TREES else []
        sets += ["latent-kv.store=latents"] if name == "latents" else []
        return optc.compile(model, "fp32", folder / "artifact", set=sets, no_gates=True).path

    return made_once(factory, f"variant-{name}", make)


@pytest.mark.parametrize("name", MODELS)
def test_fp32_generates_what_transformers_does(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind, options = MODELS[name]
    model = build(config_of(kind, **options))
    with optc.load(compiled(tmp_path_factory, name), kv_memory="4MiB") as engine:
        sampling = optc.SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)
        found = [result.token_ids for result in engine.generate(PROMPTS, sampling)]
    assert found == [greedy(model, prompt) for prompt in PROMPTS]
    assert len(set(found)) > 1


def requests() -> Iterator[tuple[list[int], optc.SamplingParams]]:
    for number, prompt in enumerate(PROMPTS):
        for temperature in (0.0, 0.9):
            yield (
                prompt,
                optc.SamplingParams(
                    max_tokens=NEW, temperature=temperature, seed=number, ignore_eos=True
                ),
            )


def run(engine: optc.Engine, *, batched: bool) -> tuple[list[tuple[int, ...]], int, int]:
    """Tokens by request, cached and drafted tokens."""
    if batched:
        others = [engine.submit(p, optc.SamplingParams(max_tokens=NEW)) for p in STRANGERS]
        handles = [engine.submit(*one) for one in requests()]
        outputs = [handle.result() for handle in [*handles, *others]][: len(handles)]
    else:
        outputs = [engine.submit(*one).result() for one in requests()]
    return (
        [output.token_ids for output in outputs],
        sum(output.metrics.cached_tokens for output in outputs),
        sum(output.metrics.drafted_tokens for output in outputs),
    )


@pytest.mark.parametrize("name", MODELS)
def test_every_combination_gives_the_tokens_of_plain_decoding(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    artifact = compiled(tmp_path_factory, name)
    plain: list[tuple[int, ...]] = []
    ways = itertools.product(SPECULATION, (False, True), (False, True))
    for speculate, chunked, hit in ways:
        with optc.load(
            artifact,
            speculate=speculate,
            token_budget=8 if chunked else None,
            prefix_cache=hit,
            block_size=32 if name in RECURRENT else 16,
            num_speculative_tokens=None if speculate == "off" else 4,
            verify="size",
            kv_memory="4MiB",
        ) as engine:
            if hit:
                engine.generate(PROMPTS, optc.SamplingParams(max_tokens=1))
            for batched in (False, True):
                tokens, cached, drafted = run(engine, batched=batched)
                plain = plain or tokens
                assert tokens == plain, (speculate, chunked, hit, batched)
                assert (cached > 0) == hit
                assert (drafted > 0) == (speculate != "off")


def test_the_cache_holds_latents(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One head of 8 shared columns and a latent of 24, and that latent once more."""
    entry = Artifact.open(compiled(tmp_path_factory, "latents")).engine(None)
    assert isinstance(entry.spec, StepInterface)
    kept = [(layer.kv_heads, layer.key_dim, layer.value_dim) for layer in entry.spec.layers]
    assert kept == [(1, 32, 24), (1, 32, 24)]


@pytest.mark.parametrize("name", TREES)
def test_rows_of_a_tree_have_the_bits_of_linear_decoding(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    artifact = Artifact.open(compiled(tmp_path_factory, name))
    entry = artifact.engine(None)
    folder = artifact.engine_folder(entry)
    executable = registry.backend(entry.backend).load(folder, entry.spec, entry.data, 2)
    known, drafts = RANDOM.integers(3, VOCABULARY, (2, 30)).tolist()
    parents = random_parents([12], [1], 7)
    driver = EngineDriver(executable, 32)
    driver.step({0: known})
    logits = driver.step({0: drafts[:12]}, parents=parents)
    for leaf in set(range(12)) - set(parents.tolist()):
        path = path_to(parents, leaf)
        alone = EngineDriver(executable, seed=3)
        alone.step({0: known[:13]})
        want = alone.step({0: known[13:] + [drafts[row] for row in path]})[-len(path) :]
        np.testing.assert_array_equal(logits[path], want)
    executable.close()


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        *((name, name) for name in RECURRENT),
        ("delta rules", "state spaces"),
        ("sinks", "convolutions"),
    ],
)
def test_models_with_states_draft_and_are_drafted_for(
    target: str, draft: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A model is right about itself, at any temperature, and about another hardly ever."""
    artifact = compiled(tmp_path_factory, target)
    with optc.load(artifact, verify="size", kv_memory="4MiB") as engine:
        plain, *_ = run(engine, batched=False)
    for budget in (None, 12):
        with optc.load(
            artifact,
            speculate="draft",
            draft=str(compiled(tmp_path_factory, draft)),
            num_speculative_tokens=3,
            token_budget=budget,
            verify="size",
            kv_memory="4MiB",
        ) as engine:
            for batched in (False, True):
                assert run(engine, batched=batched)[0] == plain, (budget, batched)
            metrics = engine.metrics()
        assert metrics.drafted_tokens
        assert (metrics.acceptance_rate > 0.9) == (target == draft), metrics.acceptance_rate


def test_drafts_that_would_change_states_are_refused_before_anything_is_built(
    tmp_path: Path,
) -> None:
    kind, options = MODELS["delta rules"]
    source = save(build(config_of(kind, **options)), tmp_path / "model")
    with pytest.raises(UnsupportedError, match="the model keeps states along the tokens") as caught:
        optc.compile(source, "fp32", tmp_path / "artifact", no_gates=True, self_draft=1)
    assert "--speculate ngram" in caught.value.hint
    assert not (tmp_path / "artifact").exists()


@pytest.mark.parametrize("name", RECURRENT)
def test_completions_and_beams_of_one_prompt_go_on_from_its_state(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Prompts of 20 and 33 tokens end within a block, which each completion gets a copy of."""
    artifact = compiled(tmp_path_factory, name)
    several = optc.SamplingParams(max_tokens=NEW, temperature=0.9, seed=3, n=3, ignore_eos=True)
    beams = optc.SamplingParams(max_tokens=NEW, temperature=0, beam_width=3)
    requests = [(prompt, how) for prompt in PROMPTS for how in (several, beams)]
    found = []
    for options in ({"prefix_cache": False}, {"token_budget": 8, "block_size": 32}):
        with optc.load(artifact, verify="size", kv_memory="4MiB", **options) as engine:
            handles = [engine.submit(*one) for one in requests]
            results = [handle.result() for handle in handles]
            found.append([[one.token_ids for one in each.completions] for each in results])
            alone = [engine.submit(*one).result() for one in requests]
            assert found[-1] == [[one.token_ids for one in each.completions] for each in alone]
    assert found[0] == found[1]
    assert len(set(found[0][0])) > 1
