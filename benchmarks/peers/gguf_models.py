"""Formats of llama.cpp and its kin out of a GGUF file: float32, an importance matrix, a format.

The importance matrix is of the calibration text that every tool is given, in windows of 512 tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import environments, ik_llama
from benchmarks.peers.subjects import Subject

#: The folder that the formats of a peer share.
FOLDERS = {"llama.cpp": "gguf", ik_llama.NAME: "ik-gguf"}
#: The GGUF file that the subject came in, as it is: its weights are not rounded again.
GIVEN = "as given"
FLOAT = "F32"
#: Float formats, and one that asks no importances.
_PLAIN = (FLOAT, "BF16", "F16", "Q8_0")
CHUNKS = 128
_WINDOW = ["-c", "512", "-b", "512", "--chunks", str(CHUNKS), "--no-ppl", "--process-output"]


@dataclass(frozen=True)
class Tools:
    """Commands of one of them.

    Attributes:
        quantize: Command for a source, an output, a format and an importance matrix or None.
        imatrix: Command for a float file, a text and an output.
        suffix: Of its importance matrices.
        framed: Its reader of the text knows special tokens, so that documents can be framed by
            the model's own.
    """

    quantize: Callable[[Path, Path, str, Path | None], list[str]]
    imatrix: Callable[[Path, Path, Path], list[str]]
    suffix: str
    framed: bool


def file_of(name: str, subject: Subject, output: Path) -> Path:
    """The file of a format."""
    if name == GIVEN and subject.gguf is not None:
        return subject.gguf
    return output / f"{name}.gguf"


def commands(name: str, subject: Subject, output: Path, tools: Tools) -> Iterator[list[str]]:
    """Make a format of a subject's GGUF file; a file that exists is not made again."""
    if name == GIVEN or subject.gguf is None:
        return
    output.mkdir(parents=True, exist_ok=True)
    base = file_of(FLOAT, subject, output)
    if not base.exists():
        yield tools.quantize(subject.gguf, base, FLOAT, None)
    if name == FLOAT:
        return
    imatrix = None
    if name not in _PLAIN and subject.calibration is not None:
        imatrix = output / f"imatrix{tools.suffix}"
        if not imatrix.exists():
            text = output / "calibration.txt"
            text.write_text(calibration_text(subject, framed=tools.framed), "utf-8")
            yield tools.imatrix(base, text, imatrix)
    yield tools.quantize(base, file_of(name, subject, output), name, imatrix)


def calibration_text(subject: Subject, *, framed: bool) -> str:
    """All documents as one text."""
    if subject.calibration is None:
        raise ValueError(f"{subject.name} has no text to calibrate with")
    lines = subject.calibration.read_text("utf-8").splitlines()
    documents = [str(json.loads(line)["text"]) for line in lines if line.strip()]
    if not framed:
        return "\n\n".join(documents)
    begin, end = subject.token_text("bos"), subject.token_text("eos")
    return "".join(f"{begin}{document}{end}" for document in documents)


def llama_cpp_tools(python: str, script: str, root: Path) -> Tools:
    """llama.cpp's: its library quantizes, its tool makes importance matrices."""

    def quantize(source: Path, output: Path, name: str, imatrix: Path | None) -> list[str]:
        more = [] if imatrix is None else [str(imatrix)]
        return [python, script, str(source), str(output), name, *more]

    def make_imatrix(base: Path, text: Path, output: Path) -> list[str]:
        tool = str(environments.llama_imatrix(root))
        return [tool, "-m", str(base), "-f", str(text), "-o", str(output), *_WINDOW,
                "--parse-special", "-fit", "off"]  # fmt: skip

    return Tools(quantize, make_imatrix, ".gguf", framed=True)


def ik_llama_tools(folder: Path) -> Tools:
    """ik_llama.cpp's tools in ``folder``."""

    def quantize(source: Path, output: Path, name: str, imatrix: Path | None) -> list[str]:
        more = ["--allow-requantize"] if imatrix is None else ["--imatrix", str(imatrix)]
        return [str(folder / "llama-quantize"), *more, str(source), str(output), name]

    def make_imatrix(base: Path, text: Path, output: Path) -> list[str]:
        tool = str(folder / "llama-imatrix")
        return [tool, "-m", str(base), "-f", str(text), "-o", str(output), *_WINDOW]

    return Tools(quantize, make_imatrix, ".dat", framed=False)
