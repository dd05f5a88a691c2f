"""A sample of ONNX's node tests through import and general passes; all are a benchmark."""

from __future__ import annotations

import pytest

from benchmarks.models.node_tests import run_node_tests


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, in the tests' own oracles
def test_a_sample_passes_behind_import_and_passes() -> None:
    found = run_node_tests(r"^test_(conv|pad|relu|clip|gemm|split_to|if|loop11|resize_up|affine)")
    assert len(found.direct) > 60
    assert found.lost == {}
    assert set(found.no_artifact) == {
        name
        for name in found.direct
        if "sequence" in name or name in ("test_if_seq", "test_if_opt")
    }


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_scan_of_opset_8_is_refused() -> None:
    found = run_node_tests("^test_scan_sum$")
    assert "it has a Scan of opset 8" in found.lost["test_scan_sum"]
