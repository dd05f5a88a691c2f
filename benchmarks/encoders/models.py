"""The engines of an encoder's folder that are measured, and how each is made."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import optc
from benchmarks.peers import environments
from benchmarks.peers.tools import run
from optc import registry
from optc.backend import TensorsBuilder
from optc.importer.tensors.encoder import import_encoder
from optc.system.hardware.target import parse_target

_QUANTIZE = Path(__file__).parent / "workers" / "quantize_openvino.py"
_OPENVINO = "openvino-genai"


@dataclass(frozen=True)
class Maker:
    """Makes engines of a folder under a work folder, once each.

    Attributes:
        folder: Of the model, as transformers or sentence-transformers write it.
        work: Where engines go.
        threads: Of each.
        worker: The script that runs an engine.
        samples: Inputs of calls by name, by which static quantization is calibrated.
    """

    folder: Path
    work: Path
    threads: int
    worker: Path
    samples: Sequence[Mapping[str, Any]]

    def makers(self) -> dict[str, Any]:
        """By label, a function that makes the engine and gives the command of its worker."""
        return {
            "optc int8": lambda: self._optc("encoder-int8"),
            "optc bf16": lambda: self._optc("encoder-bf16"),
            "ONNX Runtime fp32": lambda: self._row("onnxruntime", self.onnx()),
            "ONNX Runtime int8 (dynamic)": lambda: self._row("onnxruntime", self._dynamic()),
            "optc int8 in ONNX Runtime": lambda: self._optc("products-int8"),
            "OpenVINO fp32": lambda: self._openvino("openvino-f32", self.onnx()),
            "OpenVINO bf16": lambda: self._openvino("openvino-bf16", self.onnx()),
            "OpenVINO int8 (NNCF)": lambda: self._openvino("openvino-f32", self._nncf()),
            "torch.compile fp32": lambda: self._row("torch-f32", self.folder),
            "torch.compile bf16": lambda: self._row("torch-bf16", self.folder),
        }

    def onnx(self) -> Path:
        """The graph in float32, as optc imports it."""
        place = self.work / "onnx"
        if not (place / "model.onnx").exists():
            place.mkdir(parents=True, exist_ok=True)
            found, backend = import_encoder(self.folder), registry.backend("onnxruntime")
            if not isinstance(backend, TensorsBuilder):
                raise TypeError("ONNX Runtime builds no tensors")
            backend.build_tensors(found.model, found.interface, parse_target("native"), place)
        return place / "model.onnx"

    def _row(self, kind: str, path: Path, python: str = sys.executable) -> tuple[str, ...]:
        return (python, str(self.worker), kind, str(path), str(self.threads))

    def _optc(self, recipe: str) -> tuple[str, ...]:
        place = self.work / recipe
        if not place.exists():
            ours = "tvm" if recipe.startswith("encoder-") else None
            optc.compile(self.folder, recipe, place, backend=ours, gate=("none",))
        return self._row("optc", place)

    def _dynamic(self) -> Path:
        target = self.work / "onnx" / "dynamic-int8.onnx"
        if not target.exists():
            from onnxruntime.quantization import QuantType, quantize_dynamic

            quantize_dynamic(
                self.onnx(),
                target,
                weight_type=QuantType.QInt8,
                per_channel=True,
                op_types_to_quantize=["MatMul"],
            )
        return target

    def _openvino(self, kind: str, path: Path) -> tuple[str, ...]:
        binaries = environments.ensure(_OPENVINO, self.work)
        return self._row(kind, path, str(binaries / "python"))

    def _nncf(self) -> Path:
        target = self.work / "openvino-int8" / "model.xml"
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            samples = target.parent / "samples.npz"
            arrays = {
                f"{name}.{i}": array
                for i, sample in enumerate(self.samples)
                for name, array in sample.items()
            }
            np.savez(samples, **arrays)
            python = environments.ensure(_OPENVINO, self.work) / "python"
            run([str(python), str(_QUANTIZE), str(self.onnx()), str(samples), str(target)])
        return target
