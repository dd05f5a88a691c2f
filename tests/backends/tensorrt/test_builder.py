from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.backends.tensorrt import builder
from optc.backends.tensorrt.build_job import BuildJob
from optc.backends.tensorrt.builder import BUILDER, run_builder
from optc.backends.tensorrt.header import read_header
from optc.backends.tensorrt.layers import parse_table
from optc.backends.tensorrt.provider import missing_reason
from optc.backends.tensorrt.report import Expected, describe, signature
from optc.errors import UnavailableError, UnsupportedError
from tests.backends.tensorrt.graphs import attention_layer, request

needs_tensorrt = pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())
_EXPECTED = Expected(
    ("Attention.14",), ("MatMul.3", "MatMul.4", "MatMul.5", "MatMul.17"), ("present_k", "present_v")
)


@needs_tensorrt
@pytest.mark.parametrize(
    "architectures",
    [("sm_80",), ("sm_86",), ("sm_89",), ("sm_120",), ("sm_80", "sm_86", "sm_89", "sm_120")],
)
def test_an_engine_is_built_for_gpus_that_are_not_there(
    tmp_path: Path, architectures: tuple[str, ...]
) -> None:
    asked = request(attention_layer(), tmp_path, architectures)
    report = run_builder(asked)
    header = read_header(Path(asked.engine))
    assert header.architectures == architectures
    assert report["version"].startswith(header.release)
    assert report["engine_bytes"] == header.bytes


@needs_tensorrt
def test_the_peak_is_the_builders_own(tmp_path: Path) -> None:
    """More than the package alone takes, and less than what started it has."""
    heap = np.ones(640 << 20, np.uint8)
    report = run_builder(request(attention_layer(), tmp_path))
    assert 64 << 20 < report["builder_peak_bytes"] < heap.nbytes


@needs_tensorrt
def test_the_layer_table_shows_fused_attention_and_caches_in_place(tmp_path: Path) -> None:
    asked = request(attention_layer(), tmp_path)
    run_builder(asked)
    layers = parse_table(Path(asked.table).read_text())
    described = describe(layers, [profile.name for profile in asked.profiles], _EXPECTED)
    decode, prefill = described["profiles"]
    assert (decode["name"], prefill["name"]) == ("decode", "prefill")
    for part in (decode, prefill):
        assert part["fused_attention"]["fused"] == part["fused_attention"]["of"] == 1
        assert part["kv_in_place"] == {"in_place": 2, "of": 2}
        assert part["matmul_types"] == {"Half x Half": 4}
        assert part["other_matmuls"] == []
    assert set(decode["fused_attention"]["kernels"]) == {"_gemv_mha_v1"}


@needs_tensorrt
@pytest.mark.parametrize("sparse", [False, True])
def test_sparse_kernels_may_be_taken_where_weights_are_pruned(tmp_path: Path, sparse: bool) -> None:
    asked = replace(request(attention_layer(), tmp_path), sparse=sparse)
    assert BuildJob.from_json(asked.to_json()) == asked
    assert run_builder(asked)["sparse_weights"] == sparse


@needs_tensorrt
def test_two_builds_have_the_same_layers(tmp_path: Path) -> None:
    signatures = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        asked = request(attention_layer(), tmp_path / name)
        run_builder(asked)
        signatures.append(signature(parse_table(Path(asked.table).read_text())))
    assert signatures[0] == signatures[1]


@needs_tensorrt
def test_what_the_parser_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    model = attention_layer()
    node = next(node for node in model.graph if node.op_type == "Attention")
    node.attributes["softcap"] = ir.AttrFloat32("softcap", 30.0)
    asked = request(model, tmp_path)
    with pytest.raises(UnsupportedError, match=r"TensorRT's parser: Attention Attention\.14"):
        run_builder(asked)


@needs_tensorrt
def test_gpus_without_kernels_fail_the_build(tmp_path: Path) -> None:
    asked = request(attention_layer(), tmp_path, ("sm_90",))
    with pytest.raises(UnavailableError, match="has no kernels for sm_90"):
        run_builder(asked)
    assert not Path(asked.engine).exists()


@needs_tensorrt
def test_an_input_without_shapes_fails_the_build(tmp_path: Path) -> None:
    asked = request(attention_layer(), tmp_path)
    shapes = {k: v for k, v in asked.profiles[0].shapes.items() if k != "mask"}
    asked = replace(asked, profiles=(replace(asked.profiles[0], shapes=shapes),))
    with pytest.raises(UnsupportedError, match="decode gives no shapes for the input mask"):
        run_builder(asked)


def test_a_builder_that_dies_leaves_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        builder, "BUILDER", replace(BUILDER, module="tests.support.children.crashing_child")
    )
    asked = BuildJob(
        "", str(tmp_path / "engine"), str(tmp_path / "table"), ("sm_89",), (), "tensorrt_rtx"
    )
    Path(asked.engine).write_bytes(b"half an engine")
    with pytest.raises(
        UnavailableError, match="tensorrt backend: the builder's process was killed"
    ):
        run_builder(asked)
    assert not list(tmp_path.iterdir())
