"""A row of stages: what each reads, leaves and is told of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from optc.compiling.stages.row import Done, Stage
from optc.errors import InputError
from optc.system.progress import no_progress
from optc.system.sources.steady import steady


@dataclass(frozen=True)
class Number:
    value: int


@dataclass(frozen=True)
class Doubled:
    value: int


class Double(Stage):
    """Doubles the number, if it is even."""

    name: ClassVar[str] = "double"

    def wanted(self, done: Done) -> bool:
        return done[Number].value % 2 == 0

    def run(self, done: Done) -> Doubled:
        done.warnings.append("doubled")
        return Doubled(2 * done[Number].value)


def test_a_stage_reads_by_type_and_leaves_by_type() -> None:
    told: list[str] = []
    done = Done(lambda stage, *_: told.append(stage)).leave(Number(4), None)
    done.run([Double()])
    assert (done[Doubled].value, done[Number].value) == (8, 4)
    assert (told, list(done.seconds), done.warnings) == (["double"], ["double"], ["doubled"])


def test_a_stage_that_has_nothing_to_do_leaves_no_trace() -> None:
    done = Done(no_progress).leave(Number(3))
    done.run([Double()])
    assert done.get(Doubled) is None
    assert not done.seconds
    assert not done.warnings


def test_what_is_taken_is_kept_no_longer() -> None:
    done = Done(no_progress).leave(Number(3), Number(5))
    assert done.take(Number).value == 5
    with pytest.raises(KeyError):
        done[Number]


def test_seconds_of_stages_of_one_name_are_added() -> None:
    done = Done(no_progress).leave(Number(2))
    done.run([Double()])
    first = done.seconds["double"]
    done.run([Double()])
    assert done.seconds["double"] >= first


class Overwrite(Stage):
    """A stage during which a source changes."""

    name: ClassVar[str] = "overwrite"

    def __init__(self, source: Path, *, fails: bool) -> None:
        self.source, self.fails = source, fails

    def run(self, done: Done) -> None:
        self.source.write_bytes(b"")
        if self.fails:
            raise ValueError("mmap length is greater than file size")


@pytest.mark.parametrize("fails", [False, True])
def test_a_stage_during_which_the_source_changes_says_so(tmp_path: Path, fails: bool) -> None:
    source = tmp_path / "model.gguf"
    source.write_bytes(b"weights")
    with steady([source]), pytest.raises(InputError, match="changed while it was being read"):
        Done(no_progress).run([Overwrite(source, fails=fails)])
