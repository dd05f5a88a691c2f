from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import to_builtins

from optc.errors import ArtifactError
from optc.runtime.executable.interface import INTERFACES, Interface, type_of
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec
from optc.system.foreign.typed_json import typed
from tests.artifact.toy import toy_spec

ENCODER = TensorsInterface(
    inputs=(
        TensorSpec("input_ids", "int64", ("batch", "sequence")),
        TensorSpec("attention_mask", "int64", ("batch", "sequence")),
    ),
    outputs=(TensorSpec("embeddings", "float32", ("batch", 384)),),
    symbols={"batch": DimRange(1, 64), "sequence": DimRange(1, 512)},
)


def written(interface: Interface) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(json.dumps(to_builtins(interface)))
    return value


def test_each_interface_is_read_back_as_what_it_is() -> None:
    for interface in (ENCODER, toy_spec()):
        found = typed({"i": written(interface)}, dict[str, Interface], "m")["i"]
        assert found == interface
        assert type(found) is INTERFACES[type_of(interface)]


def test_dimensions_may_depend_on_data_and_scalars_have_none() -> None:
    boxes = TensorSpec("boxes", "float32", ("found", 4))
    TensorsInterface((TensorSpec("x", "uint8", ()),), (boxes,), {"found": DimRange(0, 300)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": []}, "there is no input"),
        ({"outputs": []}, "there is no output"),
        ({"inputs": written(ENCODER)["inputs"][:1] * 2}, "two inputs are called 'input_ids'"),
        ({"symbols": {"batch": {"least": 1, "most": 64}}}, "'sequence' has no bounds"),
        ({"symbols": {**written(ENCODER)["symbols"], "depth": {"least": 1, "most": 2}}},
         "the dimension 'depth' is no tensor's"),
        ({"symbols": {"batch": {"least": 2, "most": 1}}}, "a dimension of 2 to 1 has no size"),
        ({"symbols": {"batch": {"least": -1, "most": 1}}}, "expected 'int' >= 0"),
        ({"outputs": [{"name": "y", "dtype": "int3", "dims": []}]}, "invalid enum value 'int3'"),
        ({"outputs": [{"name": "y", "dtype": "int8", "dims": [-1]}]}, ">= 0"),
        ({"outputs": [{"name": "y", "dtype": "int8", "dims": [None]}]}, "got 'null'"),
        ({"outputs": [{"name": "y", "dtype": "int8"}]}, "missing required field 'dims'"),
    ],
)  # fmt: skip
def test_what_no_call_could_obey_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        typed({**written(ENCODER), **changes}, TensorsInterface, "m")
    assert message in caught.value.message
