"""`vocab-trim` on text, and its numbers against the whole model in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from optc.errors import InputError
from optc.ir.pipeline.base import PassContext, PassReport
from optc.ir.vocabulary import digest_ids, write_ids
from optc.ir.weights import LazyWeight
from optc.passes.prune.vocabulary.vocab_trim import VocabTrim
from tests.passes.checked import checked_run
from tests.support.models import Dense, dense_model

KEPT = [0, 1, 4, 5, 6, 20, 33, 34, 58, 60]
TEXT = """<ir_version: 10, opset_import: ["" : 23]>
g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,5] logits)
<float[5,2] table = {0,1,2,3,4,5,6,7,8,9}, float[2,5] head = {0,1,2,3,4,10,11,12,13,14},
 float[5] bias = {0,1,2,3,4}, float cap = {30}> {
  embedded = Gather (table, input_ids)
  scores = MatMul (embedded, head)
  biased = Add (scores, bias)
  logits = Div (biased, cap)
}"""


def trim(model: ir.Model, folder: Path, kept: list[int], **options: object) -> PassReport:
    write_ids(folder, kept)
    return checked_run(VocabTrim.from_options({"folder": str(folder), **options}), model)


def logits_of(model: ir.Model, tokens: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    positions = np.tile(np.arange(tokens.shape[1]), (len(tokens), 1))
    return session.run(None, {"input_ids": tokens, "position_ids": positions})[0]


def test_tables_and_vectors_lose_rows_and_nothing_else_changes(tmp_path: Path) -> None:
    model = ir.from_onnx_text(TEXT)
    report = trim(model, tmp_path, [1, 2, 4])
    assert report.details == {"embedding": 1, "head": 1, "vector of logits": 1}
    assert report.facts == {"tokens": 5, "kept": 3}
    after = """<ir_version: 10, opset_import: ["" : 23]>
g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,3] logits)
<float[3,2] table = {2,3,4,5,8,9}, float[2,3] head = {1,2,4,11,12,14},
 float[3] bias = {1,2,4}, float cap = {30}> {
  embedded = Gather (table, input_ids)
  scores = MatMul (embedded, head)
  biased = Add (scores, bias)
  logits = Div (biased, cap)
}"""
    found, wanted = ir.to_proto(model), ir.to_proto(ir.from_onnx_text(after))
    assert list(found.graph.node) == list(wanted.graph.node)
    assert list(found.graph.output) == list(wanted.graph.output)
    for one, other in zip(found.graph.initializer, wanted.graph.initializer, strict=True):
        assert (one.name, one.dims) == (other.name, other.dims)
        np.testing.assert_array_equal(
            ir.from_proto(one).numpy(), ir.from_proto(other).numpy(), strict=True
        )


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("softcap", [0.0, 30.0])
def test_logits_are_those_of_the_whole_model_at_the_tokens_that_stay(
    tied: bool, softcap: float, tmp_path: Path
) -> None:
    shape = Dense(tied=tied, logit_softcap=softcap)
    new = np.random.default_rng(5).integers(0, len(KEPT), (2, 9))
    whole = logits_of(dense_model(shape), np.array(KEPT)[new])
    model = dense_model(shape)
    trim(model, tmp_path, KEPT, sha256=digest_ids(KEPT))
    np.testing.assert_array_equal(logits_of(model, new), whole[..., KEPT])


def test_tied_tables_stay_tied_and_keep_their_names(tmp_path: Path) -> None:
    model = dense_model(Dense(tied=True))
    names = set(model.graph.initializers)
    trim(model, tmp_path, KEPT)
    assert set(model.graph.initializers) == names
    tables = [
        value.const_value
        for value in model.graph.initializers.values()
        if isinstance(value.const_value, LazyWeight)
        and value.const_value.rows_shape == (len(KEPT), 32)
    ]
    assert len(tables) == 2
    assert tables[0].read_rows == tables[1].read_rows
    assert {table.transposed for table in tables} == {False, True}


def test_every_table_of_tokens_loses_the_same_rows(tmp_path: Path) -> None:
    """Layers may read embeddings of their own, as Gemma's small models do."""
    text = TEXT.replace(
        "float[2,5] head", "float[5,2] more = {9,8,7,6,5,4,3,2,1,0}, float[2,5] head"
    ).replace(
        "scores = MatMul (embedded, head)",
        "own = Gather (more, input_ids) both = Add (embedded, own) scores = MatMul (both, head)",
    )
    kept = [1, 2, 4]
    whole = logits_of(ir.from_onnx_text(text), np.array([kept]))
    model = ir.from_onnx_text(text)
    report = trim(model, tmp_path, kept)
    assert report.details["table of tokens"] == 1
    np.testing.assert_array_equal(logits_of(model, np.array([[0, 1, 2]])), whole[..., kept])


def test_ids_beyond_the_models_tables_have_no_rows(tmp_path: Path) -> None:
    model = dense_model(Dense())
    report = trim(model, tmp_path, [*KEPT, 61, 70])
    assert report.facts == {"tokens": 61, "kept": len(KEPT)}


def test_a_plan_without_a_text_is_of_the_whole_vocabulary() -> None:
    model = dense_model(Dense())
    report = VocabTrim().run(model, PassContext(dry=True))
    assert report.details == {"not run": 1}
    assert report.warnings == ["sizes and costs are of the whole vocabulary"]
    VocabTrim().ensures(model)


def test_what_is_refused(tmp_path: Path) -> None:
    model = dense_model(Dense())
    with pytest.raises(InputError, match="vocab-trim: nothing says which tokens stay"):
        checked_run(VocabTrim(), model)
    with pytest.raises(InputError, match="the ids are not those of the recipe's sha256"):
        trim(model, tmp_path, KEPT, sha256=digest_ids(KEPT[:-1]))
    with pytest.raises(InputError, match="the ids start at 61, the model knows 61 tokens"):
        trim(model, tmp_path, [61, 62])
    with pytest.raises(InputError, match="min_count=0 is not possible"):
        VocabTrim(min_count=0)
