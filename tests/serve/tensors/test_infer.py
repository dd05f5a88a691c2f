"""The Open Inference Protocol: JSON and binary data, and a client that nobody here wrote."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from optc.serve.tensors.infer import LENGTH
from tests.serve.conftest import Api

INFER = "/v2/models/org/adder/infer"
X = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1.0, 2, 3.5, 4]}
FLAG = {"name": "flag", "shape": [], "datatype": "BOOL", "data": [True]}


def binary(api: Api, head: dict[str, Any], raw: bytes, length: str | None = None) -> Any:
    text = json.dumps(head).encode()
    headers = {LENGTH: length or str(len(text)), "content-type": "application/octet-stream"}
    return api.http.post(INFER, content=text + raw, headers=headers)


def raw_input(name: str, kind: str, array: np.ndarray[Any, Any]) -> tuple[dict[str, Any], bytes]:
    raw = array.tobytes()
    size = {"binary_data_size": len(raw)}
    return {"name": name, "shape": list(array.shape), "datatype": kind, "parameters": size}, raw


def test_the_model_says_what_it_takes(three: Api) -> None:
    found = three.http.get("/v2/models/org/adder").json()
    assert found["name"] == "org/adder"
    assert found["platform"] == "optc_toys"
    assert found["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
    assert [one["datatype"] for one in found["outputs"]] == ["FP32", "FP16", "BOOL"]
    assert three.http.get("/v2/models/org/adder/ready").json()["ready"] is True
    assert three.http.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert three.http.get("/v2/health/live").json() == {"live": True}
    assert three.http.get("/v2/health/ready").json() == {"ready": True}


def test_json_in_json_out(three: Api) -> None:
    found = three.post(INFER, id="7", inputs=[X, FLAG])
    assert (found["model_name"], found["id"]) == ("org/adder", "7")
    assert found["outputs"] == [
        {"name": "sum", "datatype": "FP32", "shape": [2], "data": [3.0, 7.5]},
        {"name": "most", "datatype": "FP16", "shape": [2], "data": [2.0, 4.0]},
        {"name": "flag", "datatype": "BOOL", "shape": [], "data": [True]},
    ]
    nested = {**X, "data": [[1, 2], [3.5, 4]]}
    (only,) = three.post(INFER, inputs=[nested, FLAG], outputs=[{"name": "sum"}])["outputs"]
    assert only["data"] == [3.0, 7.5]


def test_bytes_in_bytes_out(three: Api) -> None:
    x = np.array([[1, 2], [np.inf, 4], [5, 6]], np.float32)
    pairs = [raw_input("x", "FP32", x), raw_input("flag", "BOOL", np.array(False))]
    entries, raws = zip(*pairs, strict=True)
    wanted = [{"name": "most", "parameters": {"binary_data": True}}, {"name": "flag"}]
    answer = binary(three, {"inputs": entries, "outputs": wanted}, b"".join(raws))
    assert answer.status_code == 200, answer.text
    size = int(answer.headers[LENGTH])
    head = json.loads(answer.content[:size])
    most, flag = head["outputs"]
    assert most["parameters"] == {"binary_data_size": 6}
    assert "data" not in most
    numbers = np.frombuffer(answer.content[size:], np.float16)
    np.testing.assert_array_equal(numbers, [2, np.inf, 6])
    assert flag["data"] == [False]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([X], "lacks the input 'flag'"),
        ([X, FLAG, {**FLAG, "name": "other"}], "has no input 'other'"),
        ([X, X], "the input 'x' stands twice"),
        ([{**X, "shape": [3, 2]}, FLAG], "4 elements do not have the shape [3, 2]"),
        ([{**X, "shape": [4]}, FLAG], "has 1 axes, and is to have 2"),
        ([{**X, "shape": [-2, -2]}, FLAG], "negative size"),
        ([{**X, "shape": [1, 4]}, FLAG], "axis 1 has 4 elements, not 2"),
        ([{**X, "datatype": "FP8"}, FLAG], "the datatype is none of BOOL, INT8"),
        ([{**X, "datatype": "INT64"}, FLAG], "the data are no INT64"),
        ([{**X, "data": ["a"] * 4}, FLAG], "the data are no FP32"),
        ([{**X, "data": [[1, 2], [3]]}, FLAG], "rows of the data differ in length"),
        ([{k: v for k, v in X.items() if k != "data"}, FLAG], "there are no data"),
        ([X, {**FLAG, "datatype": "UINT8", "data": [256]}], "out of range of UINT8"),
        ([X, {**FLAG, "parameters": {"binary_data_size": 1}}], "no number of bytes"),
        ([{"name": "x"}], "inputs.0.shape is missing"),
    ],
)
def test_inputs_that_are_none(three: Api, inputs: Any, message: str) -> None:
    assert message in three.error(INFER, inputs=inputs)["message"]


def test_inputs_at_which_the_model_fails(three: Api) -> None:
    x = {**X, "data": [1, 2, 3, -4]}
    assert "x is negative" in three.error(INFER, inputs=[x, FLAG])["message"]


def test_outputs_that_are_none(three: Api) -> None:
    error = three.error(INFER, inputs=[X, FLAG], outputs=[{"name": "y"}])
    assert "no output 'y'; there are: sum, most, flag" in error["message"]
    x = {**X, "data": [3e38] * 4}
    error = three.error(INFER, inputs=[x, FLAG], outputs=[{"name": "sum"}])
    assert "ask for binary data" in error["message"]


@pytest.mark.parametrize(
    ("raw", "length", "message"),
    [
        (b"", "99999", "no length of JSON"),
        (b"", "-1", "no length of JSON"),
        (b"123", None, "no elements of 4"),
        (b"0" * 20, None, "4 bytes behind the JSON are no input's"),
    ],
)
def test_bytes_that_do_not_fit(three: Api, raw: bytes, length: str | None, message: str) -> None:
    size = {"binary_data_size": min(len(raw), 16)}
    x = {"name": "x", "shape": [2, 2], "datatype": "FP32", "parameters": size}
    answer = binary(three, {"inputs": [x, FLAG]}, raw, length)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_a_decoder_takes_no_tensors(three: Api) -> None:
    error = three.error("/v2/models/toy/infer", inputs=[X])
    assert "writes texts; ask /v1/completions" in error["message"]
    assert three.http.get("/v2/models/nothing").status_code == 404
