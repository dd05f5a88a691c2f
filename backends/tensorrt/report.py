"""A summary of an engine's layer table: kernels, fused attention, types of matmuls, KV in place."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from optc.backends.tensorrt.layers import EngineLayer, LayerTensor

#: Kernels that compute all of an attention.
_FUSED_ATTENTION = re.compile(r"^_?(gemv|gemm)_mha_v\d+")
#: Kinds of layers that multiply matrices.
_MATMULS = ("gemm", "runtime_fusion", "correlation")
#: Kinds that are no kernels.
_NO_KERNELS = ("shape_call", "signal", "wait")


@dataclass(frozen=True)
class Expected:
    """The parts of the ONNX model that the engine is asked for.

    Attributes:
        attentions: Names of its Attention nodes.
        matmuls: Names of its MatMul nodes with constant weights.
        caches: Its outputs that are caches of keys and values.
    """

    attentions: tuple[str, ...]
    matmuls: tuple[str, ...]
    caches: tuple[str, ...]


def describe(
    layers: Sequence[EngineLayer], profiles: Sequence[str], expected: Expected
) -> dict[str, Any]:
    """The engine as JSON: a description of each profile, and the signature of all.

    Args:
        layers: The engine's.
        profiles: Names of its profiles.
        expected: What to look for.
    """
    parts = sorted({layer.part for layer in layers})
    named = dict(zip(parts, profiles, strict=False)) if len(parts) == len(profiles) else {}
    return {
        "profiles": [
            {"name": named.get(part, f"part {part}")}
            | describe_part([layer for layer in layers if layer.part == part], expected)
            for part in parts
        ],
        "signature": signature(layers),
    }


def describe_part(layers: Sequence[EngineLayer], expected: Expected) -> dict[str, Any]:
    """One profile: kernels, attention, matmuls by type, caches written in place."""
    kernels = [layer for layer in layers if layer.kind not in _NO_KERNELS]
    fused = _fused_attentions(kernels)
    types = matmul_types(kernels, expected.matmuls)
    in_place = written_in_place(kernels)
    return {
        "kernels": len(kernels),
        "kinds": dict(sorted(Counter(layer.kind for layer in kernels).items())),
        "fused_attention": {
            "fused": sum(name in fused for name in expected.attentions),
            "of": len(expected.attentions),
            "kernels": dict(sorted(Counter(fused.values()).items())),
        },
        "matmul_types": dict(sorted(Counter(types.values()).items())),
        "other_matmuls": [name for name in expected.matmuls if name not in types],
        "kv_in_place": {
            "in_place": sum(name in in_place for name in expected.caches),
            "of": len(expected.caches),
        },
    }


def matmul_types(layers: Iterable[EngineLayer], names: Iterable[str]) -> dict[str, str]:
    """``Half x Int4`` for every one of the nodes that a matmul kernel computes: the types of what
    it reads, of activations and of weights."""
    wanted, found = set(names), dict[str, str]()
    for layer in layers:
        mine = [node for node in layer.nodes if node in wanted]
        if layer.kind in _MATMULS and layer.inputs and mine:
            weight = max(layer.constants, key=_elements, default=None)
            types = f"{layer.inputs[0].dtype} x {weight.dtype if weight else '?'}"
            for node in mine:
                found.setdefault(node, types)
    return found


def written_in_place(layers: Iterable[EngineLayer]) -> set[str]:
    """Outputs of the engine that some kernel reads and writes under one name."""
    return {
        output.name
        for layer in layers
        for output in layer.outputs
        if any(output.name == given.name for given in layer.inputs)
    }


def signature(layers: Iterable[EngineLayer]) -> str:
    """sha256 of the layers' kinds, types and ONNX nodes: equal for two builds of one model, where
    the bytes of the engines may differ."""
    rows = [
        [
            layer.part,
            layer.kind,
            [tensor.dtype for tensor in (*layer.inputs, *layer.constants, *layer.outputs)],
            sorted(layer.nodes),
        ]
        for layer in layers
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _fused_attentions(layers: Iterable[EngineLayer]) -> dict[str, str]:
    """Fused kernel of each ONNX node that one computes."""
    found = {}
    for layer in layers:
        match = _FUSED_ATTENTION.match(layer.tactic or layer.name)
        if match:
            found.update(dict.fromkeys(layer.nodes, match[0]))
    return found


def _elements(tensor: LayerTensor) -> int:
    count = 1
    for dim in tensor.dims:
        count *= dim
    return count


def findings(described: dict[str, Any]) -> tuple[str, ...]:
    """The ways in which an engine is not what was asked for, a sentence each for the user."""
    found = []
    for part in described["profiles"]:
        attention, caches = part["fused_attention"], part["kv_in_place"]
        where = f"TensorRT, {part['name']}"
        if attention["fused"] < attention["of"]:
            found.append(
                f"{where}: {attention['of'] - attention['fused']} of {attention['of']} attentions"
                " are not one fused kernel"
            )
        if caches["in_place"] < caches["of"]:
            found.append(
                f"{where}: {caches['of'] - caches['in_place']} of {caches['of']} caches are copied"
                " instead of written in place"
            )
        if part["other_matmuls"]:
            found.append(
                f"{where}: {len(part['other_matmuls'])} matmuls have no matmul kernel of their own,"
                f" such as {part['other_matmuls'][0]}"
            )
    return tuple(found)
