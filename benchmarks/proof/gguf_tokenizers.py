"""Tokenizers that are made of GGUF files, beside tokens that the models' own tokenizers give.

    python -m benchmarks.proof.gguf_tokenizers [--root FOLDER]

llama.cpp's source archive, which that of llama-cpp-python holds (`benchmarks.peers.environments`),
has vocabularies of models in GGUF, texts, and the ids that each model's tokenizer of transformers
gave for them. Exits with 1 where a tokenizer that is made of such a file gives others.
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
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / file.name).symlink_to(file)
        write_tokenizer(folder, folder / file.name, vocabulary_of(open_gguf(file)))
        made = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = file.with_suffix(".gguf.inp").read_text("utf-8").split(_BETWEEN)
    lines = file.with_suffix(".gguf.out").read_text("utf-8").splitlines()
    both = list(zip(texts, lines, strict=False))  # behind the last mark there is no text
    ids = [made.encode(text, add_special_tokens=False).ids for text, _ in both]
    wanted = [[int(one) for one in line.split()] for _, line in both]
    pairs = zip(both, ids, wanted, strict=True)
    return [text for (text, _), mine, theirs in pairs if mine != theirs], len(both)


if __name__ == "__main__":
    sys.exit(main())
