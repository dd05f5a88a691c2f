"""Models and sounds in files of other programs: ONNX, pickled weights, WAV."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

from tests.fuzz.edits import edit_bytes
from tests.fuzz.form import FileFormat, Materials, expect


class Onnx(FileFormat):
    """ONNX files, up to the interface that their graph is described by."""

    name = "onnx"

    def prepare(self, materials: Materials) -> None:
        super().prepare(materials)
        import optc.importer.tensors.onnx_source  # noqa: F401 - imported once, before the forks

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        return [{"m.onnx": data} for data in _onnx_models()]

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        if random.random() < 0.5:
            return edit_bytes(random, data)
        # One byte: lengths and tags of the protocol buffer, and what they hold.
        at = random.randrange(len(data) or 1)
        return data[:at] + bytes([random.choice((0, 1, 7, 8, 127, 128, 255))]) + data[at + 1 :]

    def check(self, folder: Path) -> None:
        from optc.importer.tensors.onnx_source import import_onnx

        found = import_onnx(folder / "m.onnx", "m")
        expect(bool(found.digest), "a model without a digest", found.name)


def _onnx_models() -> list[bytes]:
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    value = helper.make_tensor_value_info
    product = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    scaled = helper.make_node("Gemm", ["x", "w"], ["y"], "gemm", alpha=0.5, transB=0)
    branch = helper.make_graph([], "b", [], [value("t", TensorProto.FLOAT, [1])], [])
    branch.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "t"))
    chosen = helper.make_node("If", ["c"], ["z"], "if", then_branch=branch, else_branch=branch)
    inputs = [value("x", TensorProto.FLOAT, ["batch", 4])]
    outputs = [value("y", TensorProto.FLOAT, ["batch", 3])]
    condition = value("c", TensorProto.BOOL, [])
    graphs = [
        helper.make_graph([product], "g", inputs, outputs, [weight]),
        helper.make_graph([scaled], "g", inputs, outputs, [weight]),
        helper.make_graph(
            [product, chosen],
            "g",
            [*inputs, condition],
            [*outputs, value("z", TensorProto.FLOAT, [1])],
            [weight],
        ),
    ]
    opsets = [helper.make_opsetid("", version) for version in (18, 9, 17)]
    return [
        helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()
        for graph, opset in zip(graphs, opsets, strict=True)
    ]


class Pickled(FileFormat):
    """Weights that `torch.save` wrote, found in this process instead of one of their own."""

    name = "pickled"

    def prepare(self, materials: Materials) -> None:
        super().prepare(materials)
        import optc.importer.pickled.child  # noqa: F401 - imported once, before the forks

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        import torch

        from optc.importer.pickled.child import tensors

        made = torch.ones(4, 3)
        values = (
            {
                "a": made,
                "b": made[:2].half(),
                "c": made[1:],
                "d": torch.zeros(2, dtype=torch.int64),
            },
            {"a": made, "same": made},
        )
        with TemporaryDirectory() as name:
            path, found = Path(name) / "w.bin", []
            for value in values:
                torch.save(value, path)
                tensors(path)  # what it imports when it is called first takes seconds
                found.append({"pytorch_model.bin": path.read_bytes()})
        return found

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        return edit_bytes(random, data)

    def check(self, folder: Path) -> None:
        from optc.importer.pickled.child import tensors

        file = folder / "pytorch_model.bin"
        for key, (_, shape, first, *_) in tensors(file).items():
            inside = 0 <= first <= file.stat().st_size and all(size >= 0 for size in shape)
            expect(inside, "a tensor outside of its file", key)


class Sounds(FileFormat):
    """WAV files of each coding."""

    name = "wav"

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        kinds = ((1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64), (6, 8), (7, 8))
        return [{"a.wav": _wav(*kind)} for kind in kinds]

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        if random.random() < 0.3:
            return edit_bytes(random, data)
        head = edit_bytes(random, data[:60])
        return head + data[60:]

    def check(self, folder: Path) -> None:
        from optc.runtime.audio.wav import read_wav

        sound = read_wav(folder / "a.wav")
        expect(bool(np.isfinite(sound.samples).all()), "a sound that is not finite", sound.rate)
        expect(sound.rate > 0 and sound.samples.ndim == 1, "a sound of no form", sound.rate)


def _wav(kind: int, bits: int, channels: int = 2, rate: int = 16000) -> bytes:
    samples = bytes(range(240)) if kind != 3 else np.linspace(-1, 1, 30).astype(f"<f{bits // 8}")
    data = bytes(samples)
    width = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * width, width, bits)
    chunks = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"LIST\x04\x00\x00\x00abcd"
    chunks += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks
