"""Artifacts of tasks that this optc does not have: they open, and runtimes refuse them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import optc
from optc import registry
from optc.artifact.artifact import Artifact
from optc.errors import UnavailableError
from tests.artifact.tasks.other_task import IMAGES, LABELS, write_labels

FACE = "cannot show its task 'image-classification' as 'labels'; it shows "


def test_it_opens_with_its_task_and_interface(tmp_path: Path) -> None:
    write_labels(tmp_path / "a")
    manifest = Artifact.open(tmp_path / "a").manifest
    assert manifest.task == LABELS
    assert manifest.engines[0].interface == IMAGES
    assert manifest.engines[0].step is None


def test_a_runtime_refuses_it_by_its_name_and_says_which_optc_is_needed(tmp_path: Path) -> None:
    write_labels(tmp_path / "a")
    with pytest.raises(UnavailableError) as caught:
        optc.load(tmp_path / "a")
    known = ", ".join(registry.tasks())
    assert caught.value.render() == (
        f"{tmp_path / 'a'}: this optc knows no task 'image-classification'; it knows "
        f"{known} (install optc 0.1.0 that compiled it, or what brings the task)"
    )


def test_a_known_task_with_a_face_that_the_runtime_lacks_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = write_labels(tmp_path / "a")
    monkeypatch.setattr(registry, "tasks", lambda: {LABELS.name: LABELS})
    with pytest.raises(UnavailableError, match=FACE):
        artifact.choose()
    with pytest.raises(UnavailableError, match=FACE):
        optc.load(tmp_path / "a")
    shown = write_labels(tmp_path / "b", replace(LABELS, face="text-generation"))
    assert shown.choose().entry.name == "target"
    with pytest.raises(optc.UnsupportedError, match="'tensors', where steps are needed"):
        optc.load(tmp_path / "b", kv_memory="1MiB")
