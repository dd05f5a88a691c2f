"""Classifiers of images from folder or file to classes, by function and by command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers

import optc
from optc.errors import InputError, RequestError
from tests.support.ir_text import f32

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 31, 40, 3), np.uint8)
LABELS = ["cat", "dog", "owl"]
PROCESSOR = {
    "image_processor_type": "ConvNextImageProcessor",
    "size": {"shortest_edge": 16},
    "crop_pct": 0.875,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ResNet of two stages."""
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        id2label=dict(enumerate(LABELS)),
    )
    model = transformers.ResNetForImageClassification(config)
    for parameter in model.parameters():
        parameter.data.mul_(1.5)
    model.save_pretrained(tmp_path / "resnet")
    (tmp_path / "resnet/preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return tmp_path / "resnet"


def files(folder: Path) -> Path:
    folder.mkdir()
    for index, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


def test_a_folder_of_transformers(folder: Path, tmp_path: Path) -> None:
    images = files(tmp_path / "images")
    artifact = optc.compile(
        folder, "vision-int8", tmp_path / "a", inputs=[images], gate=["class_agreement=0.5"]
    )
    assert artifact.manifest.task.name == "classification"
    gates = {one["name"]: one["value"] for one in artifact.report()["gates"]}
    assert gates["class_agreement"] >= 0.5
    assert gates["class_top5_agreement"] == 1
    assert any("ranges are found with the inputs" in one for one in artifact.report()["warnings"])

    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    model = transformers.ResNetForImageClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(**processor(list(PIXELS), return_tensors="pt")).logits
    wanted = torch.softmax(logits, 1).numpy()
    with optc.load_tensors(artifact.path) as classifier:
        assert isinstance(classifier, optc.Classifier)
        found = classifier.classify(sorted(images.iterdir()), batch_size=4)
        for row, chances in zip(found, wanted, strict=True):
            assert [one.label for one in row] == [LABELS[one.index] for one in row]
            assert [one.score for one in row] == sorted((one.score for one in row), reverse=True)
            ours = {one.index: one.score for one in row}
            assert max(abs(ours[i] - chances[i]) for i in range(3)) < 0.1
        assert [len(row) for row in classifier.classify(list(PIXELS), top=2)] == [2] * 6
        assert classifier.classify([]) == []
        with pytest.raises(RequestError, match="top: is 0"):
            classifier.classify([PIXELS[0]], top=0)
        with pytest.raises(RequestError, match="no list of images"):
            classifier.classify("0.png")


def net(path: Path, batch: int | str = "N", scores: str = "y") -> Path:
    """Means of the channels times 3: the strongest one is the class."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[{batch},3,8,8] x) => (float[{batch},3] {scores})
    <float[3,3] w = {{3,0,0, 0,3,0, 0,0,3}}> {{
        p = GlobalAveragePool (x)
        f = Flatten (p)
        {scores} = MatMul (f, w)
    }}"""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_arrays_of_images_judge(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=PIXELS, labels=np.arange(6))
    artifact = optc.compile(
        net(tmp_path / "m.onnx"),
        output=tmp_path / "a",
        images={"size": 8},
        inputs=[tmp_path / "x.npz"],
    )
    assert artifact.report()["samples"]["samples"] == 1
    assert not artifact.report()["warnings"]


def test_what_is_no_classifier_is_told(tmp_path: Path) -> None:
    model = net(tmp_path / "m.onnx")

    def refused(message: str, source: Any = model, **how: Any) -> None:
        with pytest.raises(InputError, match=message):
            optc.compile(source, output=tmp_path / "a", **how)
        assert not (tmp_path / "a").exists()

    refused("absent.yaml: cannot be read", images=tmp_path / "absent.yaml")
    refused("images: does not say how images are read", images={"size": "large"})
    refused("images are the one input of a classifier", images={"input": "z"})
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,8,8] x) => (float[N,3,8,8] y) '
    made = onnx.parser.parse_model(text + "{ y = Relu (x) }")
    refused("no scores \\[images, classes\\]", made, images={"size": 8})


def test_a_processor_that_does_more_leaves_arrays(folder: Path, tmp_path: Path) -> None:
    odd = {"image_processor_type": "LevitImageProcessor", "size": {"shortest_edge": 16}}
    (folder / "preprocessor_config.json").write_text(json.dumps(odd))
    artifact = optc.compile(
        folder, output=tmp_path / "a", inputs=[{"pixel_values": f32(2, 3, 224, 224)}]
    )
    assert artifact.manifest.task.name == "tensors"
    assert "does more with images than its file says" in artifact.report()["warnings"][0]
