"""The table of an engine's layers, as TensorRT's builder prints it.

Without a GPU it is the only view of what was built. One line is one kernel:
``Name: .., LayerType: gemm, Inputs: [ { Name: .., Dimensions: [..], .. Datatype: Half, .. }],
Constants: [..], Outputs: [..], TacticName: .., StreamId: 0, Metadata: [ONNX Layer: ..]..``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(
    r"Name: (?P<name>.*?), LayerType: (?P<kind>\w+), Inputs: (?P<inputs>.*?), "
    r"(?:Constants: (?P<constants>.*?), )?Outputs: (?P<outputs>.*?), "
    r"(?:ParameterType: .*?, )?TacticName: (?P<tactic>.*?), StreamId: .*?Metadata: (?P<nodes>.*)$"
)
_TENSOR = re.compile(
    r"\{ Name: (?P<name>.*?), Dimensions: \[(?P<dims>[^\]]*)\].*?Datatype: (?P<dtype>\w+)"
)
_NODE = re.compile(r"\[ONNX Layer: (.*?)\](?:\x1f|$)")
#: Profiles after the first are marked in names of tensors, and so of layers.
_PROFILE = re.compile(r" \[profile (\d+)\]")
_PART = re.compile(r"_myl(\d+)_\d+$")


@dataclass(frozen=True)
class LayerTensor:
    """A tensor of a layer: its name without the mark of the profile, its type and dimensions
    (-1 where dynamic)."""

    name: str
    dtype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class EngineLayer:
    """One kernel of an engine.

    Attributes:
        name: TensorRT's name.
        kind: ``gemm``, ``kgen`` (a generated kernel), ``runtime_fusion`` (a matmul with what is
            before and behind it), ``shape_call``, …
        part: Which part of the engine it belongs to; with one part a profile, the profile.
        tactic: The kernel, or empty.
        inputs, constants, outputs: Its tensors.
        nodes: Names of the ONNX nodes that it computes.
    """

    name: str
    kind: str
    part: int
    tactic: str
    inputs: tuple[LayerTensor, ...]
    constants: tuple[LayerTensor, ...]
    outputs: tuple[LayerTensor, ...]
    nodes: tuple[str, ...]


def parse_table(text: str) -> tuple[EngineLayer, ...]:
    """The layers in the builder's messages.

    Raises:
        ValueError: A line that should be a layer is not understood: TensorRT prints it differently.
    """
    return tuple(_layers(text))


def _layers(text: str) -> Iterator[EngineLayer]:
    inside = False
    for line in text.splitlines():
        if line.startswith(("Layers:", "I/O Tensors:")):
            inside = line.startswith("Layers:")
        elif inside and line.startswith("Name: "):
            yield _layer(line)


def _layer(line: str) -> EngineLayer:
    match = _LINE.match(line)
    if match is None:
        raise ValueError(f"not a layer: {line[:200]}")
    name = match["name"]
    part = _PART.search(name)
    return EngineLayer(
        name=_PROFILE.sub("", name),
        kind=match["kind"],
        part=int(part[1]) if part else 0,
        tactic=match["tactic"],
        inputs=_tensors(match["inputs"]),
        constants=_tensors(match["constants"] or ""),
        outputs=_tensors(match["outputs"]),
        nodes=tuple(_NODE.findall(match["nodes"])),
    )


def _tensors(text: str) -> tuple[LayerTensor, ...]:
    return tuple(
        LayerTensor(
            _PROFILE.sub("", found["name"]),
            found["dtype"],
            tuple(int(dim) for dim in found["dims"].split(",") if dim),
        )
        for found in _TENSOR.finditer(text)
    )
