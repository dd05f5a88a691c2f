"""A folder of sentence-transformers becomes an artifact that embeds texts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import optc
from optc.errors import RequestError
from tests.importer.tensors.encoders import POSITIONS, sentence_transformer


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("embedding")
    folder = sentence_transformer(work / "st", "mean_tokens")
    return optc.compile(folder, output=work / "a").path


def test_texts_are_embedded_in_their_order_whatever_runs_together(artifact: Path) -> None:
    texts = ["abc", "a" * 30, "xyz xyz", "b"]
    with optc.load(artifact) as embedder:
        assert isinstance(embedder, optc.Embedder)
        whole = embedder.embed(texts)
        alone = np.concatenate([embedder.embed([one]) for one in texts])
        pairs = embedder.embed(texts, batch_size=2)
        assert embedder.embed([]).shape == (0, 32)
        cut = embedder.embed(["q" * 5 * POSITIONS, "q" * (POSITIONS - 2)])
    assert whole.shape == (4, 32)
    np.testing.assert_allclose(whole, alone, atol=1e-5)
    np.testing.assert_allclose(whole, pairs, atol=1e-5)
    np.testing.assert_allclose(cut[0], cut[1], atol=1e-5)
    assert np.abs(whole[0] - whole[3]).max() > 1e-3


def test_the_prompt_of_a_folder_stands_before_texts(artifact: Path, tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path / "st", "mean_tokens")
    stated = {"prompts": {"query": "ab"}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(stated))
    made = optc.compile(folder, output=tmp_path / "a", gate=["none"]).path
    with optc.load(made) as prompted, optc.load(artifact) as plain:
        assert isinstance(prompted, optc.Embedder)
        assert isinstance(plain, optc.Embedder)
        np.testing.assert_allclose(prompted.embed(["c"]), plain.embed(["abc"]), atol=1e-5)


def test_texts_are_ranked_by_their_vectors(artifact: Path) -> None:
    texts = ["xyz", "abc", "q" * 9]
    with optc.load_tensors(artifact) as embedder:
        assert isinstance(embedder, optc.Embedder)
        vectors = embedder.embed([*texts, "abd"]).astype(np.float64)
        found = embedder.rank("abd", texts)
        assert embedder.rank("abd", texts, top=1) == found[:1]
        assert embedder.rank("abd", []) == []
        with pytest.raises(RequestError, match="top: is 0"):
            embedder.rank("abd", texts, top=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors[:3] @ vectors[3]
    assert [one.index for one in found] == np.argsort(-cosines).tolist()
    np.testing.assert_allclose([one.score for one in found], np.sort(cosines)[::-1], atol=1e-5)


def test_what_is_no_list_of_texts(artifact: Path) -> None:
    with optc.load_tensors(artifact) as embedder:
        assert isinstance(embedder, optc.Embedder)
        for texts in ("abc", [3]):
            with pytest.raises(RequestError, match="no list of texts"):
                embedder.embed(texts)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="at least 1"):
            embedder.embed(["a"], batch_size=0)


def test_neighbours_are_judged(artifact: Path) -> None:
    report = optc.artifact.artifact.Artifact.open(artifact).report()  # type: ignore[attr-defined]
    gates = {one["name"]: one["value"] for one in report["gates"]}
    assert gates["recall_at_10"] == 1
    assert report["samples"]["reference"] == "source"
