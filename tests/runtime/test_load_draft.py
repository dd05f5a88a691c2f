"""Loading an artifact with a draft model: its own, or that of another artifact."""

from __future__ import annotations

from pathlib import Path

import pytest

import optc
from optc import registry
from tests.runtime.support.artifacts import ToyBackend, write_artifact

GREEDY = optc.SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ToyBackend:
    toy = ToyBackend()
    monkeypatch.setattr(registry, "backend", {"toy": toy}.__getitem__)
    return toy


def generate(path: Path, **options: object) -> tuple[tuple[int, ...], int, int]:
    """Tokens, drafts and accepted drafts of one prompt."""
    if options:
        options["num_speculative_tokens"] = 3
    with optc.load(path, kv_memory="1MiB", **options) as engine:  # type: ignore[arg-type]
        (result,) = engine.generate(["abc"], GREEDY)
        metrics = engine.metrics()
    return result.token_ids, metrics.drafted_tokens, metrics.accepted_tokens


@pytest.mark.parametrize("kinds", ["draft", "ngram+draft", "draft+ngram"])
def test_the_artifacts_own_draft(tmp_path: Path, backend: ToyBackend, kinds: str) -> None:
    write_artifact(tmp_path / "a", roles=("target", "draft"))
    plain = generate(tmp_path / "a")
    assert plain[1] == 0
    assert [path.name for path, _, _ in backend.calls] == ["target"]
    tokens, drafted, accepted = generate(tmp_path / "a", speculate=kinds)
    assert tokens == plain[0]
    assert drafted >= accepted > 0
    assert [path.name for path, _, _ in backend.calls[1:]] == ["target", "draft"]
    assert all(executable.closed for executable in backend.loaded)


def test_the_draft_of_another_artifact(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "a")
    write_artifact(tmp_path / "b")
    tokens, drafted, accepted = generate(tmp_path / "a", draft=tmp_path / "b")
    assert tokens == generate(tmp_path / "a")[0]
    assert drafted == accepted > 0, "the same model drafts"
    assert backend.calls[1][0] == tmp_path / "b" / "engines" / "target"


def test_an_artifact_without_draft_says_how_to_get_one(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "a")
    with pytest.raises(optc.InputError) as caught:
        optc.load(tmp_path / "a", speculate="draft")
    assert str(caught.value) == (
        f"{tmp_path / 'a'}: has no draft model "
        "(compile it with --draft MODEL, or give the artifact of a draft with draft=)"
    )


def test_another_tokenizer_is_refused(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "a")
    write_artifact(tmp_path / "b", special="<begin>")
    write_artifact(tmp_path / "c", tokenizer=False)
    for other, problem in (
        ("b", "the draft's tokenizer differs from the target's in its 'model'"),
        ("c", "the draft has no tokenizer, the other model has one"),
    ):
        with pytest.raises(optc.InputError) as caught:
            optc.load(tmp_path / "a", draft=tmp_path / other)
        assert str(caught.value) == (
            f"{tmp_path / other}: {problem} (a draft must be trained with the target's tokenizer)"
        )
    assert not backend.calls


def test_another_vocabulary_is_refused_and_both_are_closed(
    tmp_path: Path, backend: ToyBackend
) -> None:
    write_artifact(tmp_path / "a", tokenizer=False)
    write_artifact(tmp_path / "b", tokenizer=False, vocab=300)
    with pytest.raises(optc.InputError) as caught:
        optc.load(tmp_path / "a", draft=tmp_path / "b")
    assert str(caught.value) == (
        "draft: the draft model knows 300 tokens, the target 259 "
        "(a draft must have the target's vocabulary)"
    )
    assert [executable.closed for executable in backend.loaded] == [True, True]


def test_a_draft_that_would_not_be_used_is_an_error(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "a")
    with pytest.raises(optc.InputError, match="a draft model is given, but not used by 'ngram'"):
        optc.load(tmp_path / "a", draft=tmp_path / "a", speculate="ngram")


def test_no_drafts_at_all_is_an_error(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "a")
    with pytest.raises(optc.InputError) as caught:
        optc.load(tmp_path / "a", speculate="ngram", num_speculative_tokens=0)
    assert str(caught.value) == "num_speculative_tokens: 0 is too few (at least 1)"


def test_costs_are_measured_at_the_first_load_only(
    tmp_path: Path, backend: ToyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))
    write_artifact(tmp_path / "a", roles=("target", "draft"))
    steps = []
    for cached in (True, True, False):
        optc.load(tmp_path / "a", kv_memory="1MiB", speculate="draft", cost_cache=cached).close()
        steps.append([len(executable.batches) > 0 for executable in backend.loaded[-2:]])
    assert steps == [[True, True], [False, False], [True, True]]
    kept = sorted(path.name.rsplit("-", 1)[0] for path in (tmp_path / "cache").iterdir())
    assert kept == [f"row-costs.v2.{of}" for of in ("draft", "draft.reading", "target")]


def test_unknown_kinds_are_refused(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "a")
    with pytest.raises(optc.InputError) as caught:
        optc.load(tmp_path / "a", speculate="ngram+magic")
    assert str(caught.value) == (
        "speculate: speculation by 'magic' is not known "
        "(off, or one or more of ngram, lookahead, draft, self, eagle, medusa, joined by +)"
    )


def test_the_models_own_first_layers(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "a", roles=("target", "draft", "self"))
    tokens, drafted, accepted = generate(tmp_path / "a", speculate="self")
    assert tokens == generate(tmp_path / "a")[0]
    assert drafted == accepted > 0
    assert [path.name for path, _, _ in backend.calls[:2]] == ["target", "self"]


def test_two_models_cannot_both_draft(tmp_path: Path, backend: ToyBackend) -> None:
    write_artifact(tmp_path / "a", roles=("target", "draft", "self"))
    with pytest.raises(optc.InputError) as caught:
        optc.load(tmp_path / "a", speculate="draft+self")
    assert (
        str(caught.value) == "speculate: two models cannot both draft (one of draft, self, eagle)"
    )
    write_artifact(tmp_path / "b")
    with pytest.raises(optc.InputError) as caught:
        optc.load(tmp_path / "b", speculate="self")
    assert str(caught.value) == (
        f"{tmp_path / 'b'}: has no draft of its own layers (compile it with --self-draft LAYERS)"
    )
