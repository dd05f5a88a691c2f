from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from optc.errors import ArtifactError
from optc.runtime.executable.adapter_spec import AdapterModule, AdapterPart, AdapterSpec
from optc.runtime.executable.executable import KVGroup, LayerKV, StepInterface
from optc.system.foreign.typed_json import typed
from tests.artifact.toy import toy_spec

#: The least that an engine can have.
LEAST = StepInterface(
    *(1, 1, 1, 1, 1, 1),
    batch_invariant=False,
    groups=(KVGroup(0, (0,)),),
    layers=(LayerKV(0, 1, 1, 1, "float32"),),
    adapters=AdapterSpec(1, 1, (AdapterModule(1, 1, (AdapterPart("w", 0, 1),)),)),
)
PART = AdapterPart("w", 0, 8)
TURNED = AdapterPart("v", 8, 16, 12, ((11, -1, 8),))
FULL = replace(
    toy_spec(),
    tree=True,
    samples=True,
    kv_layout="slots",
    accept_rates=((0.5, 1.0), (0.0,)),
    hidden_size=8,
    hidden_rows="logits",
    shared_kv=(1, 0),
    features=True,
    encoded=1500,
    adapters=AdapterSpec(2, 8, (AdapterModule(16, 16, (PART, TURNED), 16),)),
)


def written(spec: StepInterface) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(json.dumps(to_builtins(spec)))
    return value


def parsed(value: dict[str, Any], **changes: Any) -> StepInterface:
    return typed({**value, **changes}, StepInterface, "spec")


def test_interfaces_are_read_back() -> None:
    for spec in (toy_spec(), FULL, LEAST):
        assert parsed(written(spec)) == spec
        assert written(spec)["type"] == "step"


def adapters(*, k: int = 1, n: int = 8, hadamard: int = 0, **part: Any) -> dict[str, Any]:
    module = {"k": k, "n": n, "parts": [{"name": "w", "start": 0, "stop": 8, **part}]}
    return {"max": 1, "rank": 1, "modules": [{**module, "hadamard": hadamard}]}


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([[0, 1, 7]], "'ranges' are not as many rows as 'start' and 'stop' state"),
        ([[5, 1, 8]], r"\[5, 1, 8\] are no rows of 12"),
        ([[0, -1, 8]], "are no rows of 12"),
        ([[12, -1, 8]], "are no rows of 12"),
        ([[0, 1]], "expected 'array' of length 3, got 2"),
        ([[0, True, 8]], "expected 'int', got 'bool'"),
        ([[0, 1, 0]], "are no rows of 12"),
    ],
)
def test_rows_that_a_tensor_lacks_are_refused(ranges: Any, message: str) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        parsed(written(toy_spec()), adapters=adapters(of=12, ranges=ranges))
    assert caught.value.where.startswith("spec: adapters.modules[0].parts[0]")


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ({"max_sequences": 0}, "max_sequences", "expected 'int' >= 1"),
        ({"max_logit_rows": 2**31}, "max_logit_rows", "expected 'int' <= 2147483647"),
        ({"max_rows": "1"}, "max_rows", "expected 'int', got 'str'"),
        ({"max_rows": True}, "max_rows", "expected 'int', got 'bool'"),
        ({"groups": [{"window": -1, "layers": [0, 1]}]}, "groups[0].window", "expected 'int' >= 0"),
        ({"groups": [{"window": 0, "layers": [0, 2]}]}, "", "the layers that 'groups' lists"),
        ({"groups": [{"window": 0, "layers": [0, 1]}]}, "", "the layers that 'groups' lists"),
        ({"groups": [{"window": 0, "layers": [0, 0]}]}, "", "the layers that 'groups' lists"),
        ({"groups": []}, "", "the layers that 'groups' lists"),
        ({"accept_rates": [[1.5]]}, "accept_rates[0][0]", "expected 'float' <= 1.0"),
        ({"accept_rates": [[-0.5]]}, "accept_rates[0][0]", "expected 'float' >= 0.0"),
        ({"accept_rates": [[True]]}, "accept_rates[0][0]", "expected 'float', got 'bool'"),
        ({"accept_rates": [0.5]}, "accept_rates[0]", "expected 'array', got 'float'"),
        ({"hidden_size": -1}, "hidden_size", "expected 'int' >= 0"),
        ({"hidden_size": 2**17}, "hidden_size", "expected 'int' <= 65536"),
        ({"hidden_rows": "some"}, "hidden_rows", "invalid enum value 'some'"),
        ({"kv_layout": "heaps"}, "kv_layout", "invalid enum value 'heaps'"),
        ({"shared_kv": [0, -1]}, "shared_kv[1]", "expected 'int' >= 0"),
        ({"novelty": 1}, "", "object contains unknown field 'novelty'"),
        ({"adapters": {"max": 0, "rank": 1, "modules": []}}, "adapters.max", "expected 'int' >= 1"),
        ({"adapters": adapters(stop=9)}, "adapters.modules[0]", "'w' ends at column 9 of 8"),
        ({"adapters": adapters(start=-1)}, "adapters.modules[0].parts[0].start", ">= 0"),
        ({"adapters": adapters(start=8)}, "adapters.modules[0].parts[0]", "the columns 8:8"),
        ({"adapters": adapters(k=64, hadamard=32)}, "adapters.modules[0]", "is 32, none of"),
        ({"adapters": adapters(k=8, hadamard=16)}, "adapters.modules[0]", "is 16, none of"),
    ],
)  # fmt: skip
def test_what_no_build_writes_is_refused(changes: dict[str, Any], place: str, message: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        parsed(written(toy_spec()), **changes)
    assert message in caught.value.message
    assert caught.value.where == (f"spec: {place}" if place else "spec")
    assert "compile the model again" in caught.value.hint


def test_a_block_of_a_rotation_may_be_as_wide_as_the_input() -> None:
    found = parsed(written(toy_spec()), adapters=adapters(k=16, hadamard=16)).adapters
    assert found is not None
    assert found.modules[0].hadamard == 16


@pytest.mark.parametrize(
    "place",
    [
        *("vocab_size", "max_context", "max_rows", "max_sequences", "max_logit_rows"),
        "block_multiple",
        *("layers.0.kv_heads", "layers.0.key_dim", "layers.0.value_dim"),
        *("adapters.max", "adapters.rank", "adapters.modules.0.k", "adapters.modules.0.n"),
    ],
)
def test_no_size_is_zero(place: str) -> None:
    value = written(LEAST)
    *parents, key = place.split(".")
    parent: Any = value
    for name in parents:
        parent = parent[int(name) if isinstance(parent, list) else name]
    parent[key] = 0
    with pytest.raises(ArtifactError, match="expected 'int' >= 1") as caught:
        parsed(value)
    assert caught.value.where.endswith(f".{key}" if parents else f": {key}")


def test_heads_and_their_sizes_have_a_limit() -> None:
    most = {"group": 0, "kv_heads": 65536, "key_dim": 65536, "value_dim": 65536, "dtype": "int8"}
    groups = [{"window": 0, "layers": [0]}]
    value = written(toy_spec())
    assert parsed(value, groups=groups, layers=[most]).layers[0] == LayerKV(**most)  # type: ignore[arg-type]
    for key in ("kv_heads", "key_dim", "value_dim"):
        with pytest.raises(ArtifactError, match="expected 'int' <= 65536"):
            parsed(value, groups=groups, layers=[{**most, key: 65537}])
