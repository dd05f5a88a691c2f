"""A model's tokenizer files, as a compile takes them; what it wrote must load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from optc.artifact.artifact import Artifact
from optc.artifact.writer import ArtifactWriter
from optc.errors import OptcError
from tests.artifact.toy import toy_manifest, write_engine
from tests.fuzz.edits import edit_json, edit_text
from tests.fuzz.form import FileFormat, Materials, expect, read_files
from tests.fuzz.formats.chat import WORDS
from tests.fuzz.odd import NUMBERS, TEXTS

_NAMES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
_TOKEN = {"content": "<x>", "lstrip": False, "normalized": True, "rstrip": False, "special": True}
#: Values worth trying in any of the files.
KNOWN: dict[str, list[Any]] = {
    **{f"{key}_token_id": [*NUMBERS, [], [1, 1], ["1"]] for key in ("bos", "eos", "pad")},
    **{f"{key}_token": [*TEXTS, _TOKEN, {}, 1, None] for key in ("bos", "eos", "unk")},
    "chat_template": [
        1,
        [],
        {},
        {"default": 3},
        [{"name": "default", "template": "{{ 1 }}"}],
        "{%",
    ],
    "added_tokens_decoder": [{"0": _TOKEN}, {"x": _TOKEN}, [], {"0": 1}, {"-1": _TOKEN}, 1],
    "added_tokens": [[{"id": 5, **_TOKEN}], [{}], [1], {}],
    "tokenizer_class": [
        "LlamaTokenizer",
        "GPT2Tokenizer",
        "BertTokenizer",
        "EvilTokenizer",
        1,
        None,
    ],
    "auto_map": [{"AutoTokenizer": ["evil.Evil", None]}, 1],
    "model_max_length": [0, -1, 10**30, "x"],
    "additional_special_tokens": [["<a>"], [1], "x", {}],
    "add_bos_token": [True, False, None, "x"],
    "add_eos_token": [True, False],
}


class TokenizerFiles(FileFormat):
    """The compile's step that writes the tokenizer, an artifact of it, and its load."""

    name = "tokenizer-files"
    needs = frozenset({"model"})

    def prepare(self, materials: Materials) -> None:
        super().prepare(materials)
        import transformers

        transformers.logging.set_verbosity_error()

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        whole = read_files(materials.model, *_NAMES)
        marked = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": None}
        return [
            whole,
            {**whole, "special_tokens_map.json": json.dumps(marked).encode()},
            {**whole, "chat_template.jinja": b"{% for m in messages %}{{ m.content }}{% endfor %}"},
            {name: whole[name] for name in whole if name != "tokenizer_config.json"},
        ]

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        if name.endswith(".jinja"):
            return edit_text(random, data, WORDS)
        return edit_json(random, data, KNOWN)

    def check(self, folder: Path) -> None:
        from optc.compiling.resolving.tokenizer import write_tokenizer

        output = folder.with_name("artifact")
        shutil.rmtree(output, ignore_errors=True)
        files = [folder / name for name in _NAMES if (folder / name).is_file()]
        with ArtifactWriter(output) as writer:
            write_engine(writer)
            entry = write_tokenizer(
                folder, files, {"bos_token_id": 0}, writer.folder, allow_remote_code=False
            )
            manifest = toy_manifest(writer.hashed_files())
            writer.commit(replace(manifest, tokenizer=entry), {})
        _load(output)


def _load(output: Path) -> None:
    """Open what was written: to refuse it now is too late."""
    from optc.runtime.loader import artifact_tokenizer

    try:
        tokenizer = artifact_tokenizer(Artifact.open(output))
        if tokenizer is not None:
            tokenizer.decode(tokenizer.encode("def f(x): return 1"))
    except OptcError as error:
        expect(False, "a compile wrote what does not load", error.render())
