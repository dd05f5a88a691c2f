"""Encoders of text become engines over packed rows."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import optc
from optc.errors import InputError, RequestError, UnsupportedError
from optc.importer.tensors import encoder
from tests.importer.tensors.encoders import (
    POSITIONS,
    bert,
    pooled_by_attention,
    sentence_transformer,
    vit,
)
from tests.support.cost.imported_once import import_once

TEXTS = ["abc", "a" * 30, "xyz xyz", "b", "the quick brown fox"]
Array = npt.NDArray[Any]


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        import_once(patch, encoder, encoder.import_encoder)
        yield


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder of texts."""
    return bert(tmp_path_factory.mktemp("plain") / "bert")


@pytest.fixture(scope="module")
def siglip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder of images whose rows attention pools."""
    return pooled_by_attention(tmp_path_factory.mktemp("pooled") / "siglip")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("packed")
    folder = sentence_transformer(work / "st", "mean_tokens")
    return optc.compile(folder, "encoder-int8", work / "a", gate=("none",)).path


def test_a_sentence_encoder_runs_on_packed_rows(artifact: Path) -> None:
    manifest = optc.artifact.artifact.Artifact.open(artifact).manifest  # type: ignore[attr-defined]
    assert [one.backend for one in manifest.engines] == ["tvm"]
    assert manifest.recipe["name"] == "encoder-int8"
    report = optc.artifact.artifact.Artifact.open(artifact).report()  # type: ignore[attr-defined]
    gates = {one["name"]: one["value"] for one in report["gates"]}
    assert gates["cosine_mean"] > 0.99


def test_a_text_has_the_same_bits_alone_and_beside_others(artifact: Path) -> None:
    with optc.load(artifact) as embedder:
        assert isinstance(embedder, optc.Embedder)
        whole = embedder.embed(TEXTS)
        alone = np.concatenate([embedder.embed([one]) for one in TEXTS])
        pairs = embedder.embed(TEXTS[::-1], batch_size=2)[::-1]
        many = embedder.embed(TEXTS * 100, batch_size=500)  # more than a call of the engine takes
        assert embedder.embed([]).shape == (0, 32)
    np.testing.assert_array_equal(whole, alone)
    np.testing.assert_array_equal(whole, pairs)
    np.testing.assert_array_equal(np.tile(whole, (100, 1)), many)


def test_threads_take_turns(artifact: Path) -> None:
    with optc.load(artifact, threads=2) as embedder:
        assert isinstance(embedder, optc.Embedder)
        expected, found = embedder.embed(TEXTS), [np.zeros(0)] * 4

        def embed(index: int) -> None:
            found[index] = embedder.embed(TEXTS)

        threads = [threading.Thread(target=embed, args=(i,)) for i in range(len(found))]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    for vectors in found:
        np.testing.assert_array_equal(vectors, expected)


def test_it_loads_without_torch_and_the_compiler(artifact: Path) -> None:
    code = f"""
import sys
for name in ("torch", "transformers", "onnx", "onnx_ir", "onnxruntime", "tvm"):
    sys.modules[name] = None
import optc
with optc.load({str(artifact)!r}) as embedder:
    print(embedder.embed(["abc"]).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(1, 32)", done.stderr


def _inputs(**changes: Array) -> dict[str, Array]:
    ids = np.array([[2, 5, 6, 3], [2, 9, 3, 0]])
    given = {
        "input_ids": ids,
        "attention_mask": (ids != 0).astype(np.int64),
        "token_type_ids": np.zeros_like(ids),
    }
    return {**given, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_mask": np.array([[1, 1, 1, 1], [0, 1, 1, 1]])}, "is not ones, then zeros"),
        ({"attention_mask": np.array([[1, 1, 1, 1], [0, 0, 0, 0]])}, "row 1 has no token"),
        ({"input_ids": np.array([[2, 5, 6, 3], [2, 900, 3, 0]])}, "holds 900"),
        ({"input_ids": np.array([[2, 5, 6, 3], [2, -1, 3, 0]])}, "holds -1"),
        ({"token_type_ids": np.full((2, 4), 2)}, "holds 2"),
    ],
)
def test_inputs_that_it_does_not_take(
    artifact: Path, changes: dict[str, Array], message: str
) -> None:
    with optc.load_tensors(artifact) as engine:
        assert engine(**_inputs())["embeddings"].shape == (2, 32)
        with pytest.raises(RequestError, match=message):
            engine(**_inputs(**changes))


def test_outputs_by_token_have_zeros_where_padding_is(plain: Path, tmp_path: Path) -> None:
    artifact = optc.compile(plain, "encoder-bf16", tmp_path / "a", gate=("none",))
    with optc.load_tensors(artifact.path) as engine:
        outputs = engine(**_inputs())
    assert outputs["last_hidden_state"].shape == (2, 4, 32)
    assert not outputs["last_hidden_state"][1, 3].any()
    assert outputs["last_hidden_state"][1, 2].any()
    gates = {one["name"]: one["value"] for one in artifact.report()["gates"]}
    assert gates["cosine_mean"] > 0.999


def test_other_models_get_the_other_recipe_and_a_warning_says_so(
    siglip: Path, tmp_path: Path
) -> None:
    artifact = optc.compile(siglip, "encoder-int8", tmp_path / "a", gate=("none",))
    assert artifact.manifest.recipe["name"] == "products-int8"
    (warning,) = [w for w in artifact.report()["warnings"] if "encoder-int8" in w]
    assert "does not take this model" in warning
    assert "products-int8 does" in warning


def test_an_encoder_of_images_runs_on_packed_rows(tmp_path: Path) -> None:
    artifact = optc.compile(vit(tmp_path / "vit"), "encoder-int8", tmp_path / "a", gate=("none",))
    assert [one.backend for one in artifact.manifest.engines] == ["tvm"]
    gates = {one["name"]: one["value"] for one in artifact.report()["gates"]}
    assert gates["cosine_mean"] > 0.999
    images = np.random.default_rng(0).standard_normal((300, 3, 16, 16)).astype(np.float32)
    with optc.load_tensors(artifact.path) as engine:
        whole = engine(images)  # more rows than a call of the engine takes
        alone = [engine(images[i : i + 1]) for i in (0, 7, 299)]
    assert whole["last_hidden_state"].shape == (300, 5, 32)
    for name, rows in whole.items():
        np.testing.assert_array_equal(
            np.concatenate([one[name] for one in alone]), rows[[0, 7, 299]]
        )


def test_another_backend_has_the_other_recipe(plain: Path, tmp_path: Path) -> None:
    artifact = optc.compile(
        plain, "encoder-int8", tmp_path / "a", backend="onnxruntime", gate=("none",)
    )
    assert artifact.manifest.recipe["name"] == "products-int8"


def test_a_model_that_the_backend_was_asked_for_is_refused(
    plain: Path, siglip: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match="not an operator of the dense form"):
        optc.compile(siglip, "encoder-int8", tmp_path / "a", backend="tvm")
    with pytest.raises(UnsupportedError, match="takes encoders over packed rows"):
        optc.compile(plain, "tensors-fp32", tmp_path / "c", backend="tvm")
    assert not (tmp_path / "a").exists()


def test_texts_are_cut_to_the_places_that_the_model_has(artifact: Path) -> None:
    with optc.load(artifact) as embedder:
        assert isinstance(embedder, optc.Embedder)
        cut = embedder.embed(["q" * 5 * POSITIONS, "q" * (POSITIONS - 2)])
    np.testing.assert_array_equal(cut[0], cut[1])


def test_a_recipe_that_goes_on_with_one_that_does_not_exist(plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("name: r\ntask: tensors\npipeline: [simplify]\notherwise: zzz\n")
    with pytest.raises(InputError, match="unknown recipe 'zzz'"):
        optc.compile(plain, path, tmp_path / "a")
