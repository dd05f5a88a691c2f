"""Real ONNX files of others, compiled in float32 and int8 over inputs such as they get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

import optc
from benchmarks.inputs.real_models.fetch import real_model
from optc.errors import OptcError

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
_CIFAR = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
_CAFFE = {"do_rescale": False, "image_mean": [104, 117, 123], "channels": "bgr"}
_WORDS = [
    "optc",
    "proves",
    "0",
    "that",
    "12",
    "engines",
    "3.5",
    "keep",
    "what",
    "models",
    "say",
    "2026",
    "Total",
    "EUR",
    "99.90",
    "Invoice",
]


@dataclass(frozen=True)
class RealFile:
    """A file, and what it is judged by.

    Attributes:
        name: Of the row.
        path: The file, from the folders of models.
        inputs: Makes the inputs, from the folder of images.
        images: How images are read, for classifiers.
        gate: Of the int8 engine.
    """

    name: str
    path: Callable[[Path], Path]
    inputs: Callable[[Path], list[Tensors]]
    images: Mapping[str, Any] | None = None
    gate: str = "sqnr_db=20"


def crops(folder: Path, count: int, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Seeded random cuts u8[count, height, width, 3] of the images in a folder."""
    source = np.random.default_rng(0)
    files = sorted((folder / "images").iterdir())
    found = []
    for index in range(count):
        image = Image.open(files[index % len(files)]).convert("RGB")
        share = source.uniform(0.5, 1.0)
        size = (int(image.width * share), int(image.height * share))
        left, top = (
            int(source.integers(0, a - b + 1)) for a, b in zip(image.size, size, strict=True)
        )
        cut = image.crop((left, top, left + size[0], top + size[1])).resize((width, height), 2)
        found.append(
            cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if source.random() < 0.5 else cut
        )
    return np.stack([np.asarray(one) for one in found])


def _normalized(pixels: npt.NDArray[np.uint8]) -> Array:
    return ((pixels / 255 - 0.5) / 0.5).transpose(0, 3, 1, 2).astype(np.float32)


def _written(count: int, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Lines of text as images."""
    source = np.random.default_rng(0)
    font = ImageFont.load_default(size=int(height * 0.6))
    found = []
    for _ in range(count):
        image = Image.new("RGB", (width, height), tuple(source.integers(180, 256, 3).tolist()))
        text = " ".join(source.choice(_WORDS, 3))
        ink = tuple(source.integers(0, 90, 3).tolist())
        ImageDraw.Draw(image).text((4, height * 0.1), text, fill=ink, font=font)
        found.append(np.asarray(image))
    return np.stack(found)


def _tones(count: int, length: int, rate: int) -> Array:
    """Sums of three tones with noise f32[count, length], within 1."""
    source = np.random.default_rng(0)
    times = np.arange(length) / rate
    pitches = source.uniform(110, 880, (count, 3, 1))
    loud = source.uniform(0, 0.25, (count, 3, 1))
    waves = (loud * np.sin(2 * np.pi * pitches * times)).sum(1)
    return (waves + source.normal(0, 0.01, waves.shape)).astype(np.float32)


def _cifar(folder: Path) -> list[Tensors]:
    with np.load(folder / "cifar10_test_2000.npz", allow_pickle=True) as arrays:
        return [{"images": arrays["images"]}]


def _bytes(folder: Path) -> list[Tensors]:
    """First 2,048 bytes of files of this project, as magika reads them."""
    files = sorted(Path(__file__).parents[2].rglob("*.*"))
    texts = [
        path.read_bytes()[:2048] for path in files if path.is_file() and ".git" not in str(path)
    ]
    rows = [np.frombuffer(text, np.uint8) for text in texts[:: max(1, len(texts) // 128)] if text]
    padded = [
        np.pad(row.astype(np.int32), (0, 2048 - len(row)), constant_values=256) for row in rows
    ]
    return [{"bytes": np.stack(padded[:128])}]


def _voice(folder: Path) -> list[Tensors]:
    state = np.zeros((2, 4, 128), np.float32)
    chunks = _tones(128, 512, 16000).reshape(32, 4, 512)
    return [{"input": one, "state": state, "sr": np.array(16000)} for one in chunks]


def _fetched(name: str, file: str) -> Callable[[Path], Path]:
    return lambda folder: next(real_model(name).rglob(file))


def _beside(file: str) -> Callable[[Path], Path]:
    return lambda folder: folder / file


FILES = (
    RealFile("resnet20, CIFAR-10", _beside("resnet20_cifar10.onnx"), _cifar, _CIFAR),
    RealFile("resnet56, CIFAR-10", _beside("resnet56_cifar10.onnx"), _cifar, _CIFAR),
    RealFile(
        "squeezenet 1.0",
        _beside("squeezenet1_0.onnx"),
        lambda folder: [{"images": crops(folder, 320, 227, 227)}],
        _CAFFE,
    ),
    RealFile(
        "super-resolution",
        _beside("pytorch_super_resolution.onnx"),
        lambda folder: [
            {"input": crops(folder, 64, 224, 224)[..., 1][:, None].astype(np.float32) / 255}
        ],
    ),
    RealFile(
        "digits, perceptron",
        _beside("mnist_mlp.onnx"),
        lambda folder: [
            {"input": crops(folder, 128, 28, 28)[..., 1].reshape(-1, 784) / np.float32(255)}
        ],
    ),
    RealFile("silero-vad 16 kHz", _beside("silero_vad_16k_op15.onnx"), _voice),
    RealFile(
        "rapidocr, detection",
        _fetched("rapidocr", "*det_infer.onnx"),
        lambda folder: [{"x": _normalized(_written(64, 160, 320))}],
    ),
    RealFile(
        "rapidocr, recognition",
        _fetched("rapidocr", "*rec_infer.onnx"),
        lambda folder: [{"x": _normalized(_written(64, 48, 320))}],
        gate="cosine_mean=0.99",
    ),
    RealFile(
        "rapidocr, direction",
        _fetched("rapidocr", "*cls_infer.onnx"),
        lambda folder: [{"x": _normalized(_written(64, 48, 192))}],
    ),
    RealFile("magika", _fetched("magika", "*model.onnx"), _bytes),
    RealFile(
        "basic-pitch",
        _fetched("basic-pitch", "*.onnx"),
        lambda folder: [{"serving_default_input_2:0": _tones(64, 43844, 22050)[..., None]}],
        gate="cosine_mean=0.99",
    ),
)


def measure_real(folder: Path, scratch: Path, only: str = "") -> Iterator[dict[str, Any]]:
    """A row for each file: gates of both recipes, or why there is no artifact.

    Args:
        folder: Of the ONNX files and images.
        scratch: For artifacts, one at a time.
        only: A part of a name.
    """
    for file in FILES:
        if only not in file.name:
            continue
        inputs, path = file.inputs(folder), file.path(folder)
        row: dict[str, Any] = {"name": file.name, "file": path.name}
        for recipe in ("tensors-fp32", "vision-int8"):
            gates = ["none"] if recipe == "tensors-fp32" else ["sqnr_db=none", file.gate]
            stated = ["output_error=0.0001"] if recipe == "tensors-fp32" else gates
            options: dict[str, Any] = {} if file.images is None else {"images": file.images}
            try:
                made = optc.compile(
                    path, recipe, scratch / "a", inputs=inputs, gate=stated, force=True, **options
                )
                row[recipe] = {one["name"]: one["value"] for one in made.report()["gates"]}
                row[recipe]["bytes"] = sum(one.bytes for one in made.manifest.files)
            except OptcError as error:
                told = getattr(error, "details", {}).get("gates", [])
                row[recipe] = {"error": str(error)[:300]}
                row[recipe] |= {one["name"]: one["value"] for one in told}
        row["gate"] = file.gate
        yield row
