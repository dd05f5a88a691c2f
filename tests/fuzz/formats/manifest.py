"""Files of an artifact: the manifest, the report, the tokenizer."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

from optc.artifact.artifact import Artifact
from tests.fuzz.edits import edit_bytes, edit_json, edit_text
from tests.fuzz.form import Draw, FileFormat, Files, Materials, read_files
from tests.fuzz.formats.chat import WORDS
from tests.fuzz.odd import NUMBERS, words

_MANIFEST, _REPORT = "manifest.json", "report.json"
_TOKENIZER, _TEMPLATE = "tokenizer/tokenizer.json", "tokenizer/chat_template.jinja"
_NUMBERS = words("""
offset bytes max_context max_rows max_sequences max_logit_rows block_multiple key_dim value_dim
kv_heads vocab_size window group
""")
#: What an engine's numbers may be damaged to; most keys are reached by chance too seldom.
KNOWN: dict[str, list[Any]] = {
    **{key: [*NUMBERS, None, "1", [1], 1.5] for key in _NUMBERS},
    "shape": [[], [0], [-1], [2**40], [1, 2, 3], [None], ["a"], 3, [1.5], [2**63, 2]],
    "dtype": ["int4", "float32", "float64", "object", "V16", "", None, "int8", "U9", "M8[s]"],
    "features": [[], ["avx9"], [1], "avx2", None, ["a"] * 99],
    "shared": ["../../../x", "/tmp", "../target", "", 1, None],
    "kv_layout": ["slots", "paged", "x", 1],
    "backend": ["onnxruntime", "tensorrt", "none", "", 1],
    "chat_template": ["/etc/hostname", "../x", "tokenizer/tokenizer.json", "manifest.json", 1],
    "folder": ["..", "/", "engines", "", "engines/target/../target"],
    "files": [[], ["../x"], ["tokenizer/tokenizer.json"], [1], "x", {}],
    "layers": [[], [0], [7], [-1], [0, 0], [1.5], ["x"]],
    "groups": [[], [{"window": 0, "layers": [0]}], [{"window": -1, "layers": [0]}], {}],
    "eos_token_ids": [[], [-1], [10**30], [True], ["x"], 1],
    "accept_rates": [[[0.5]], [[]], [["x"]], [[float("nan")]], [3], [[2, -1]]],
    "adapters": [
        {"max": 1, "rank": 1, "modules": []},
        {},
        [],
        {"max": -1, "rank": 0, "modules": []},
    ],
    "weights": [[], [{}], {}, [1], None],
    "ffi": ["0", None, 1, ""],
    "samples": [True, False, 1],
    "tree": [True, 1],
    "gated": [True, False, 1],
    "costs": [{}, {"kernels": {}}, {"kernels": {"x": {}}}, [], None],
    "format": [1, 3, "2", 2.0, None, True],
}


class ArtifactFormat(FileFormat):
    """A copy of the artifact with one file changed."""

    needs = frozenset({"artifact"})
    file = _MANIFEST

    def prepare(self, materials: Materials) -> None:
        super().prepare(materials)
        self.artifact = materials.artifact

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        return [read_files(materials.artifact, self.file)]

    def open(self, folder: Path) -> None:
        super().open(folder)
        shutil.copytree(self.artifact, folder, dirs_exist_ok=True)
        entries = Artifact.open(folder, "size").manifest.engines
        self.engines = [entry.name for entry in entries if entry.role == "target"]
        generate(folder, self.engines)  # undamaged: what a load brings once is there from now on

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        return edit_json(random, data, KNOWN)

    def check(self, folder: Path) -> None:
        inspect(folder, "--json")
        generate(folder, self.engines)


class ManifestBytes(ArtifactFormat):
    """Bytes of the manifest."""

    name = "manifest-bytes"

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        return edit_bytes(random, data)


class ManifestJson(ArtifactFormat):
    """JSON of the manifest, its digest left as it was."""

    name = "manifest-json"


class ManifestDigest(ArtifactFormat):
    """JSON of the manifest with the digest of what it says now: the loader reads it."""

    name = "manifest-digest"

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        return edit_json(random, data, KNOWN, broken=0.02)  # without JSON there is no digest

    def make(self, draw: Draw) -> Files:
        return _with_digest(super().make(draw))


class Report(ArtifactFormat):
    """The report, which ``optc inspect`` prints."""

    name = "report"
    file = _REPORT

    def check(self, folder: Path) -> None:
        inspect(folder, "--json")
        inspect(folder)


class ArtifactTokenizer(ArtifactFormat):
    """Tokenizer and chat template of an artifact, with lengths and digests of what they are now."""

    name = "artifact-tokenizer"
    file = _TOKENIZER

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        return [read_files(materials.artifact, _MANIFEST, _TOKENIZER, _TEMPLATE)]

    def targets(self, files: Files) -> list[str]:
        return [*[_TOKENIZER] * 4, *(name for name in files if name == _TEMPLATE)]

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        if name == _TEMPLATE:
            return edit_text(random, data, WORDS)
        return edit_json(random, data, TOKENIZER_PARTS)

    def make(self, draw: Draw) -> Files:
        files = dict(super().make(draw))
        manifest = json.loads(files[_MANIFEST])
        for entry in manifest["files"]:
            data = files.get(entry["path"])
            if data is not None:
                entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        files[_MANIFEST] = json.dumps(manifest).encode()
        return _with_digest(files)

    def check(self, folder: Path) -> None:
        from optc.runtime.loader import artifact_tokenizer

        tokenizer = artifact_tokenizer(Artifact.open(folder, "size"))
        assert tokenizer is not None
        ids = tokenizer.encode("def f(é):\n  <s> 🙂")
        tokenizer.decode(ids)
        assert tokenizer.longest_token >= 0
        generate(folder, self.engines[:1], "def f(x)")


_METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
_REGEX = {
    "type": "Split",
    "pattern": {"Regex": "(a|b|ab)*c"},
    "behavior": "Isolated",
    "invert": False,
}
#: Parts that tokenizers may have, for those that are changed.
TOKENIZER_PARTS: dict[str, list[Any]] = {
    "pre_tokenizer": [None, _METASPACE, _REGEX, {"type": "Whitespace"}, {"type": "Sequence"}],
    "normalizer": [
        *(None, {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Precompiled"}),
        {"type": "Replace", "pattern": {"String": ""}, "content": "a"},
        {"type": "Prepend", "prepend": "a" * 99},
    ],
    "post_processor": [
        None,
        {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}},
        {"type": "BertProcessing", "sep": ["</s>", 10**9], "cls": ["<s>", 2**32 - 1]},
    ],
    "decoder": [None, _METASPACE, {"type": "ByteFallback"}, {"type": "WordPiece", "prefix": "##"}],
    "model": [
        {"type": "BPE", "vocab": {}, "merges": []},
        {"type": "BPE", "vocab": {"a": 2**32 - 1}, "merges": []},
        {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": 0},
        {"type": "Unigram", "vocab": [], "unk_id": 7},
        {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "b", "max_input_chars_per_word": 0},
        {"type": "WordLevel", "vocab": {}, "unk_token": ""},
    ],
    "truncation": [
        {"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 9}
    ],
    "padding": [{"strategy": {"Fixed": 2**40}, "direction": "Right", "pad_id": 0}],
    "unk_id": [-1, 10**9, None],
    "id": [*NUMBERS],
    "byte_fallback": [True, False, 1],
    "dropout": [0.0, 0.5, 1.0, 2.0, -1.0, None],
    "continuing_subword_prefix": ["", "##", "é" * 99],
    "vocab": [{}, [], {"a": -1}, {"a": 2**40}, {"a": 0, "b": 0}, {"": 0}],
    "merges": [[], ["a b"], [["a", "b"]], [[]], ["a"], [["", ""]]],
}


def inspect(folder: Path, *options: str) -> None:
    """``optc inspect``, whose errors are raised."""
    from optc.cli.main import cli

    cli.main(["inspect", str(folder), *options], prog_name="optc", standalone_mode=False)


def generate(folder: Path, engines: list[str], text: str = "") -> None:
    """Load each engine and continue a prompt by a few tokens."""
    import optc

    for name in engines:
        loaded = optc.load(folder, engine=name, threads=1, kv_memory="4MiB", verify="size")
        with loaded:
            prompt = text or [2, 3, 4]
            params = optc.SamplingParams(max_tokens=3, temperature=0.0)
            loaded.generate([prompt], params)[0].raise_for_error()


def _with_digest(files: Files) -> Files:
    """The same with the manifest's digest recomputed; as it was where that is no object."""
    try:
        body = json.loads(files[_MANIFEST])
        body.pop("digest", None)
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError, AttributeError, TypeError):
        return files
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return {**files, _MANIFEST: json.dumps({**body, "digest": digest}).encode()}
