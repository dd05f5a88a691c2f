"""Conversion of a model by each peer: commands, and the files that they leave."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.peers import gguf_models, ik_llama
from benchmarks.peers.subjects import Subject
from benchmarks.peers.tools import Command, run
from benchmarks.peers.variants import Variant
from optc.system.cache_folder import code_digest

HERE = Path(__file__).parent
#: Files that hold weights: optc's, OpenVINO's and CTranslate2's, llama.cpp's,
#: onnxruntime-genai's, torch's and vLLM's.
_WEIGHT_FILES = (".bin", ".gguf", ".data", ".safetensors")
#: About as many as a recipe chooses that gives a tenth of the layers activations of more bits.
_WIDE_LAYERS = ("model.layers.[01].*",)


@dataclass(frozen=True)
class Converted:
    """A converted model: where it lies, how long it took, what it weighs.

    ``weight_bytes`` are those of the files with weights, quantization parameters included and
    tokenizers not.
    """

    path: Path
    seconds: float
    bytes_on_disk: int
    weight_bytes: int


@dataclass(frozen=True)
class Place:
    """The folders of a conversion.

    Attributes:
        binaries: The peer's folder of binaries.
        subject: The model.
        root: Work folder of all peers.
        output: What is made: a folder, which peers that read GGUF share.
    """

    binaries: Path
    subject: Subject
    root: Path
    output: Path

    @property
    def python(self) -> str:
        """The peer's Python."""
        return str(self.binaries / "python")


Commands = Callable[[Variant, Place], Iterator[Command]]


def convert(variant: Variant, binaries: Path, subject: Subject, root: Path) -> Converted:
    """Convert a model for a variant, once; later calls find the result. optc's is made again
    after optc's code changed.

    Raises:
        FailedError: A tool failed.
    """
    shared = gguf_models.FOLDERS.get(variant.peer)
    folder = shared or f"{variant.peer}-{variant.format}"
    output = root / "models" / subject.name / folder
    stamp = output.with_name(f"{folder}-{variant.format}.seconds")
    made_by = code_digest() if variant.peer == "optc" else ""
    if not _made(stamp, made_by):
        output.parent.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        for command in COMMANDS[variant.peer](variant, Place(binaries, subject, root, output)):
            run(command)
        stamp.write_text(f"{time.perf_counter() - start} {made_by}")
    seconds = float(stamp.read_text().split()[0])
    if shared:
        path = gguf_models.file_of(variant.format, subject, output)
        size = path.stat().st_size
        return Converted(path, seconds, size, size - subject.metadata_bytes)
    path = output if output.exists() else subject.folder
    files = [f for f in path.rglob("*") if f.is_file()]
    weights = [f for f in files if f.suffix in _WEIGHT_FILES and "tokenizer" not in f.name]
    return Converted(path, seconds, _bytes(files), _held(variant, _bytes(weights)))


def _held(variant: Variant, size: int) -> int:
    """Bytes of weights that a peer holds: bf16 of a float32 file are half."""
    return size // 2 if variant.cast_at_load else size


def _made(stamp: Path, by: str) -> bool:
    return stamp.exists() and stamp.read_text().split()[1:] == ([by] if by else [])


def _bytes(files: list[Path]) -> int:
    return sum(f.stat().st_size for f in files)


@contextmanager
def fresh_copy(model: Converted, root: Path) -> Iterator[Path]:
    """A copy of a model's files, so that their place in memory is another one than last time's."""
    with tempfile.TemporaryDirectory(dir=root) as folder:
        copy = Path(folder) / model.path.name
        if model.path.is_file():
            shutil.copy(model.path, copy)
        else:
            shutil.copytree(model.path, copy)
        os.sync()  # nothing is written while others are measured
        yield copy


def _optc(variant: Variant, place: Place) -> Iterator[Command]:
    # Gates are not part of a conversion time that peers could be compared by.
    rounded = variant.rounded and place.subject.calibration is None
    given = variant.format.endswith(gguf_models.GIVEN) and place.subject.gguf is not None
    name = variant.recipe or variant.format.removesuffix(f" {gguf_models.GIVEN}")
    recipe = rounding(name, place.output) if rounded else name
    sets = [part for one in variant.sets for part in ("--set", one)]
    source = place.subject.gguf if given else place.subject.folder
    yield [str(place.binaries / "python"), "-m", "optc", "compile", str(source),
           "--recipe", recipe, "-o", str(place.output), "--no-gates", "--force", *sets]  # fmt: skip


def rounding(name: str, output: Path) -> str:
    """A file beside ``output`` with the recipe ``name``: weights are rounded to nearest, and layers
    named where they would be chosen by what they lose."""
    recipe = yaml.safe_load((HERE.parents[1] / "recipes" / f"{name}.yaml").read_text())
    recipe["pipeline"] = [one for one in recipe["pipeline"] if "propagate-errors" not in one]
    options = {key: one[key] for one in recipe["pipeline"] if isinstance(one, dict) for key in one}
    del options["quantize-weights"]["method"]
    if options.get("allocate-activations", {}).get("budget", 2) < 2:
        options["quantize-weights"]["activation_layers"] = list(_WIDE_LAYERS)
        recipe.pop("for_engines")  # CUDA engines would have no layers to name
    file = output.with_name(f"{name}-rounded.yaml")
    file.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return str(file)


def _llama_cpp(variant: Variant, place: Place) -> Iterator[Command]:
    if place.subject.gguf is None:
        formats = [] if variant.format == "BF16" else [variant.format]
        to_gguf = str(HERE / "to_gguf.py")
        yield [place.python, to_gguf, str(place.subject.folder), str(place.output), *formats]
        return
    script = str(HERE / "gguf_quantize.py")
    yield from gguf_models.commands(
        variant.format, place.subject, place.output,
        gguf_models.llama_cpp_tools(place.python, script, place.root),
    )  # fmt: skip


def _ik_llama(variant: Variant, place: Place) -> Iterator[Command]:
    tools = ik_llama.tools(place.binaries)
    if place.subject.gguf is None:
        base, file = place.output / "BF16.gguf", place.output / f"{variant.format}.gguf"
        yield [place.python, str(HERE / "to_gguf.py"), str(place.subject.folder), str(place.output)]
        yield [str(tools / "llama-quantize"), str(base), str(file), variant.format]
        return
    yield from gguf_models.commands(
        variant.format, place.subject, place.output, gguf_models.ik_llama_tools(tools)
    )


def _genai(variant: Variant, place: Place) -> Iterator[Command]:
    precision = variant.format
    options = []
    if precision in ("int4", "int8"):
        # int8 activations; whole-block sums of 128 are the fastest kernels at 8 bits.
        block = {"int4": 32, "int8": 128}[precision]
        options = ["--extra_options", "accuracy_level=4", f"block_size={block}"]
    yield [place.python, "-m", "onnxruntime_genai.models.builder", "-i", str(place.subject.folder),
           "-o", str(place.output), "-p", precision, "-e", "cpu", "-c",
           str(place.root / "cache"), *options]  # fmt: skip


def _openvino(variant: Variant, place: Place) -> Iterator[Command]:
    weights = ["--weight-format", variant.format.split("-")[0]]
    if weights[1] == "int4":
        group = "32" if "g32" in variant.format else "64"
        weights += ["--group-size", group, "--ratio", "1.0"]
    yield [str(place.binaries / "optimum-cli"), "export", "openvino", "-m",
           str(place.subject.folder), "--task", "text-generation-with-past", *weights,
           str(place.output)]  # fmt: skip


def _vllm(variant: Variant, place: Place) -> Iterator[Command]:
    if variant.format == "W8A8":
        script = str(HERE / "w8a8.py")
        yield [place.python, script, str(place.subject.folder), str(place.output)]


def _ctranslate2(variant: Variant, place: Place) -> Iterator[Command]:
    yield [str(place.binaries / "ct2-transformers-converter"), "--model",
           str(place.subject.folder), "--output_dir", str(place.output), "--quantization",
           variant.format, "--force"]  # fmt: skip


def _as_it_is(_variant: Variant, _place: Place) -> Iterator[Command]:
    yield from ()


COMMANDS: dict[str, Commands] = {
    "optc": _optc,
    "llama.cpp": _llama_cpp,
    ik_llama.NAME: _ik_llama,
    "onnxruntime-genai": _genai,
    "openvino-genai": _openvino,
    "torch.compile": _as_it_is,
    "vllm": _vllm,
    "ctranslate2": _ctranslate2,
}
