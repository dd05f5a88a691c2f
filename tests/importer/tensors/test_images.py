"""Folders of classifiers whose images nobody can read: a warning says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optc.importer.tensors.images import images_of_folder

CLASSIFIER = {"architectures": ["ViTForImageClassification"]}


@pytest.mark.parametrize(
    ("config", "processor", "why"),
    [
        ({"architectures": ["ViTModel"]}, False, ""),
        (CLASSIFIER, False, "without preprocessor_config.json nobody knows how images are read"),
        (CLASSIFIER | {"num_channels": 1}, True, "its images have 1 channels"),
    ],
)
def test_the_artifact_takes_arrays_then(
    tmp_path: Path, config: dict[str, Any], processor: bool, why: str
) -> None:
    if processor:
        (tmp_path / "preprocessor_config.json").write_text("{}")
    images, told = images_of_folder(tmp_path, config)
    assert images is None
    assert told.startswith(why)
    assert not why or told.endswith("takes pixel_values as arrays, and no images")
