"""Classifiers of images by command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optc.runtime.tensors.classifier import Classifier
from optc.runtime.tensors.load import load_tensors
from tests.cli.conftest import Optc
from tests.compiling.tensors.test_classification import net

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
GREEN = np.zeros((9, 12, 3), np.uint8)
GREEN[..., 1] = 200


@pytest.mark.parametrize("batch", ["N", 4])
def test_a_file_says_how_images_are_read(batch: int | str, tmp_path: Path, optc: Optc) -> None:
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\n")
    told = tmp_path / "images.yaml"
    told.write_text("size: 8\nchannels: bgr\nlabels: labels.txt\nimage_mean: [0, 0, 0]\n")
    Image.fromarray(GREEN).save(tmp_path / "green.png")
    a = tmp_path / "a"
    made = optc("compile", net(tmp_path / "m.onnx", batch), "--images", told, "-o", a, "--json")
    assert made.code == 0, made.err
    run = ("run", a, "--inputs", tmp_path / "green.png")
    assert "green.png: green 0." in optc(*run).out
    (row,) = optc(*run, "--json").json["images"]
    assert row["classes"][0]["label"] == "green"
    assert optc("verify", a).code == 0
    # the order of channels is the model's: blue comes first in bgr, and that class is "red"
    with load_tensors(a) as classifier:
        assert isinstance(classifier, Classifier)
        (best, *_) = classifier.classify([GREEN[..., [0, 2, 1]]] * 3)[2]
        assert best.label == "red"


def test_what_is_no_image_is_told(tmp_path: Path, optc: Optc) -> None:
    (tmp_path / "images.yaml").write_text("size: 8")
    model, a = net(tmp_path / "m.onnx"), tmp_path / "a"
    assert optc("compile", model, "--images", tmp_path / "images.yaml", "-o", a).code == 0
    (tmp_path / "i.png").write_bytes(b"none")
    failed = optc("run", a, "--inputs", tmp_path / "i.png")
    assert failed.code == 2
    assert "is no image that can be read" in failed.err
    kept = optc("run", a, "--inputs", tmp_path / "i.png", "--output", tmp_path / "o.npz")
    assert "keeps arrays, and images have classes" in kept.err
