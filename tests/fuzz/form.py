"""What a format gives to the fuzzer: undamaged inputs, small changes, and what takes the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar, Generic, TypeVar

Value = TypeVar("Value")
#: Contents of files by their paths in a folder.
Files = Mapping[str, bytes]

#: How many changes an input has: few, or one hides another.
_EDITS = (1, 1, 1, 1, 2, 2, 3, 4)


@dataclass(frozen=True)
class Draw:
    """One input as numbers: which sample it begins with, and each change's own seed."""

    sample: int
    edits: tuple[int, ...]

    @classmethod
    def of(cls, name: str, seed: int, index: int) -> Draw:
        """Input ``index`` of a format; the same ones in every run of the same seed."""
        random = Random(f"{name}:{seed}:{index}")
        count = random.choice(_EDITS)
        return cls(random.getrandbits(32), tuple(random.getrandbits(32) for _ in range(count)))


@dataclass(frozen=True)
class Materials:
    """Where undamaged inputs lie.

    Attributes:
        model: A Hugging Face folder.
        artifact: It, or another one, compiled.
    """

    model: Path
    artifact: Path


class Format(ABC, Generic[Value]):
    """A kind of input. `prepare` runs once, before workers are forked; `open` in each worker.

    `run` gives an input to optc: it returns (accepted), raises an `OptcError` (refused), or what it
    does else is a finding.
    """

    name: ClassVar[str]
    #: Of `Materials`: which it needs.
    needs: ClassVar[frozenset[str]] = frozenset()

    def prepare(self, materials: Materials) -> None:
        """Import what is needed and read the samples; starts no threads."""

    def open(self, folder: Path) -> None:
        """Get ready in a worker, whose own folder this is."""

    @abstractmethod
    def sample(self, random: Random) -> Value:
        """An undamaged input."""

    @abstractmethod
    def edit(self, random: Random, value: Value) -> Value:
        """The input with one small change."""

    @abstractmethod
    def run(self, value: Value) -> None:
        """Give it to optc."""

    @abstractmethod
    def shown(self, value: Value) -> Files:
        """Files that a person needs to see what the input was."""

    def make(self, draw: Draw) -> Value:
        """The input that a draw stands for."""
        value = self.sample(Random(draw.sample))
        for seed in draw.edits:
            value = self.edit(Random(seed), value)
        return value


class FileFormat(Format[Files]):
    """Inputs that are files in a folder.

    Attributes:
        samples: What `read` gave.
        folder: The worker's own; holds the input when `check` is called.
    """

    samples: list[dict[str, bytes]]
    folder: Path

    def prepare(self, materials: Materials) -> None:
        self.samples = self.read(materials)

    @abstractmethod
    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        """The undamaged inputs; the first of them is one that commands take."""

    def open(self, folder: Path) -> None:
        self.folder = folder
        self._present: set[str] = set()

    def sample(self, random: Random) -> Files:
        return random.choice(self.samples)

    def edit(self, random: Random, value: Files) -> Files:
        name = random.choice(self.targets(value))
        return {**value, name: self.edit_file(random, name, value[name])}

    def targets(self, files: Files) -> list[str]:
        """Names of the files that may be changed; one that is named twice is twice as likely."""
        return sorted(files)

    @abstractmethod
    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        """One of the files with one small change."""

    def run(self, value: Files) -> None:
        for name in self._present - set(value):
            (self.folder / name).unlink(missing_ok=True)
        write_files(self.folder, value)
        self._present = set(value)
        self.check(self.folder)

    @abstractmethod
    def check(self, folder: Path) -> None:
        """Give the files in the folder to optc."""

    def shown(self, value: Files) -> Files:
        return value


def write_files(folder: Path, files: Files) -> None:
    """Write files into a folder, which is made where it is missing."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def read_files(folder: Path, *names: str) -> dict[str, bytes]:
    """The named files of a folder; those that it lacks are left out."""
    found = {name: folder / name for name in names}
    return {name: path.read_bytes() for name, path in found.items() if path.is_file()}


class WrongError(AssertionError):
    """optc took an input and did something wrong with it, though it raised nothing.

    Attributes:
        what: What is wrong, in the same words for every input.
    """

    def __init__(self, what: str, details: object) -> None:
        self.what = what
        super().__init__(f"{what}: {details!r}")


def expect(condition: bool, what: str, details: object) -> None:
    """Raise `WrongError` where a condition does not hold."""
    if not condition:
        raise WrongError(what, details)
