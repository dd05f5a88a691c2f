"""Tokenizers that are made of GGUF files, beside tokens that the models' own tokenizers give.

    python -m benchmarks.proof.gguf_tokenizers [--root FOLDER]

llama.cpp's source archive, which that of llama-cpp-python holds (`benchmarks.peers.environments`),
has vocabularies of models in GGUF, texts, and the ids that each model's tokenizer of transformers
gave for them. A control token's text has its own id. Exits with 1 where a tokenizer that is made of
such a file gives others.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.peers.environments import llama_source
from optc.errors import OptcError
from optc.importer.gguf.file import open_gguf, vocabulary_of
from optc.importer.gguf.folder import write_tokenizer
from optc.importer.gguf.vocabulary import PREFIX, TOKENS

#: Of ``tokenizer.ggml.token_type``: a text of such a token is its id.
_CONTROL = 3
_BETWEEN = "\n__ggml_vocab_test__\n"


def main() -> int:
    """Compare, and print a line for each vocabulary."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.gguf_tokenizers", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(".peers"))
    args = parser.parse_args()
    failed = 0
    for file in sorted((llama_source(args.root) / "models").glob("ggml-vocab-*.gguf")):
        if not file.with_suffix(".gguf.out").exists():
            continue
        name = file.stem.removeprefix("ggml-vocab-")
        try:
            wrong, count = differing(file)
        except OptcError as error:
            print(f"{name:20} refused: {str(error).replace(str(file), file.name)[:120]}")
            continue
        failed += bool(wrong)
        print(f"{name:20} {count - len(wrong)} of {count} texts have equal ids", *wrong[:1])
    return int(failed > 0)


def differing(file: Path) -> tuple[list[str], int]:
    """Texts whose ids differ, and the number of all.

    Raises:
        OptcError: No tokenizer is made of the file.
    """
    vocabulary = vocabulary_of(open_gguf(file))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / file.name).symlink_to(file)
        write_tokenizer(folder, folder / file.name, vocabulary)
        made = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = file.with_suffix(".gguf.inp").read_text("utf-8").split(_BETWEEN)
    lines = file.with_suffix(".gguf.out").read_text("utf-8").splitlines()
    both = list(zip(texts, lines, strict=False))  # behind the last mark there is no text
    wanted = [(text, [int(one) for one in line.split()]) for text, line in both]
    kinds = zip(vocabulary[TOKENS], vocabulary.get(f"{PREFIX}token_type", ()), strict=False)
    wanted += [(text, [i]) for i, (text, kind) in enumerate(kinds) if kind == _CONTROL]
    ids = [made.encode(text, add_special_tokens=False).ids for text, _ in wanted]
    pairs = zip(wanted, ids, strict=True)
    return [text for (text, theirs), mine in pairs if mine != theirs], len(wanted)


if __name__ == "__main__":
    sys.exit(main())
