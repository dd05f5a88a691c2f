"""A propagation that was stopped goes on after the last block that was done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optc.ir.pipeline.base import PassContext, PassReport
from optc.passes.quantize.propagate import checkpoints
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.propagate.stages import CorrectedStages
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import calibration_of
from tests.support.dense_models import dense_model
from tests.support.letters import letters_folder

GPTQ = QuantizeWeights(bits=4, group_size=32, symmetric=False, method="gptq")


class StoppedError(Exception):
    """The compile was killed."""


@pytest.fixture(autouse=True)
def every_block_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_S", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return letters_folder(tmp_path)


def run(folder: Path, cache: str = "", windows: int = 24) -> tuple[PassReport, str]:
    """The report, and a digest of what was quantized."""
    text = str(folder / "text.txt")
    cache = str(folder / cache) if cache else ""
    one = PropagateErrors(
        text=text,
        folder=str(folder),
        cache=cache,
        windows=windows,
        window_tokens=64,
        products="float32",
    )
    model = dense_model(3)
    report = one.run(model, PassContext(later=(GPTQ,)))
    return report, calibration_of(model).digest()


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the blocks that are computed; -1 as the first entry stops the run in the third."""
    counted: list[int] = []
    done = CorrectedStages.block_done

    def block_done(self: CorrectedStages, *given: object) -> None:
        if counted[:1] == [-1] and len(counted) == 3:
            raise StoppedError
        counted.append(len(self.noise))
        done(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(CorrectedStages, "block_done", block_done)
    return counted


def stop_in_the_third_block(folder: Path, blocks: list[int]) -> None:
    blocks[:] = [-1]
    with pytest.raises(StoppedError):
        run(folder, "cache")
    assert blocks[1:] == [0, 1]
    blocks.clear()


def test_it_goes_on_after_the_last_block_and_gives_the_same_bits(
    folder: Path, blocks: list[int]
) -> None:
    whole, digest = run(folder)
    stop_in_the_third_block(folder, blocks)
    report, again = run(folder, "cache")
    assert blocks == [2]
    assert again == digest
    assert report.facts.pop("resumed_after_blocks") == 2
    assert report == whole
    blocks.clear()
    report, again = run(folder, "cache")
    assert (again, blocks, report.facts["from_cache"]) == (digest, [], True)


def test_what_it_kept_of_its_blocks_is_gone_when_it_is_complete(
    folder: Path, blocks: list[int]
) -> None:
    stop_in_the_third_block(folder, blocks)
    names = sorted(place.name[64:] for place in (folder / "cache").iterdir())
    assert names == ["-block-00000", "-block-00001", "-streams-00002"]
    run(folder, "cache")
    assert [place.name[64:] for place in (folder / "cache").iterdir()] == [""]


def test_the_state_of_another_calibration_is_not_taken(folder: Path, blocks: list[int]) -> None:
    stop_in_the_third_block(folder, blocks)
    report, _ = run(folder, "cache", windows=23)
    assert blocks == [0, 1, 2]
    assert "resumed_after_blocks" not in report.facts


@pytest.mark.parametrize("part", ["-block-00000", "-streams-00002"])
def test_a_damaged_state_is_begun_again_and_told(
    folder: Path, blocks: list[int], part: str
) -> None:
    _, digest = run(folder)
    stop_in_the_third_block(folder, blocks)
    (place,) = (folder / "cache").glob(f"*{part}")
    array = np.load(place / "0.npy", mmap_mode="r+")
    array.reshape(-1)[0] += 1
    array.flush()
    report, again = run(folder, "cache")
    assert blocks == [0, 1, 2]
    assert again == digest
    where = folder / "cache"
    assert f"what a stopped calibration left in {where} was damaged: begun again" in report.warnings
