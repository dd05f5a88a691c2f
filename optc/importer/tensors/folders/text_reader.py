"""The tokenizer of an encoder's folder, as transformers reads it.

transformers' classes change normalizers and post-processors of the file in the folder, and build
what lacks such a file from a vocabulary; texts must be read as those who use the model know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import normalizers

from optc.errors import InputError, UnsupportedError
from optc.importer.remote_code import check_remote_code, never_ask

#: Files that have a vocabulary.
_VOCABULARIES = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model"),
    *("sentencepiece.bpe.model", "sentencepiece.model", "spm.model", "bpe.codes"),
)
#: transformers' number for a tokenizer that states no length is 1e30.
_UNBOUNDED = 1 << 31
_TYPES = "token_type_ids"
#: Names of the class that reads any tokenizer.json.
_GENERAL = ("TokenizersBackend", "PreTrainedTokenizerFast")


@dataclass(frozen=True)
class TextReader:
    """A tokenizer.

    Attributes:
        backend: That of the package tokenizers.
        most: Tokens of a text that it states; None where it states none.
        padding: Token that fills the shorter texts of a batch.
        typed: Whether it tells the types of tokens.
    """

    backend: tokenizers.Tokenizer
    most: int | None
    padding: int
    typed: bool

    @classmethod
    def of(cls, folder: Path, *, lower: bool = False) -> TextReader | None:
        """The tokenizer of a folder; None where it has no vocabulary.

        Args:
            folder: With the tokenizer's files.
            lower: Whether texts are put into small letters first.

        Raises:
            InputError: transformers does not read it.
            UnsupportedError: It has no form that the package tokenizers runs, or needs code of its
                own.
        """
        if not any((folder / name).is_file() for name in _VOCABULARIES):
            return None
        made = _made(folder)
        if lower:
            _lower(made.backend_tokenizer)
        most = made.model_max_length
        return cls(
            made.backend_tokenizer,
            int(most) if isinstance(most, int | float) and 0 < most < _UNBOUNDED else None,
            int(made.pad_token_id or 0),
            _is_typed(made),
        )

    def to_json(self, most: int) -> str:
        """As JSON, cutting texts to ``most`` tokens, and padding them."""
        backend = self.backend
        backend.enable_truncation(most)
        backend.enable_padding(
            pad_id=self.padding, pad_token=backend.id_to_token(self.padding) or ""
        )
        return str(backend.to_str())


def _made(folder: Path) -> Any:
    from transformers import AutoTokenizer

    check_remote_code(folder, allowed=False)
    never_ask()
    try:
        found = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # both libraries raise what they like at what they do not know
        text = " ".join(str(error).split())[:200]
        raise InputError(
            f"its tokenizer is not read: {type(error).__name__}: {text}",
            where=str(folder),
            hint="its files are damaged, not of this version of transformers, or a vocabulary "
            "alone; a tokenizer.json of the package tokenizers is read",
        ) from error
    if not hasattr(found, "backend_tokenizer"):
        raise UnsupportedError(
            f"{type(found).__name__} has no form that the package tokenizers runs",
            where=str(folder),
            hint="put a tokenizer.json of it into the folder, or take its tokenizer's files out: "
            "the artifact then takes token ids",
        )
    return found


def _is_typed(made: Any) -> bool:
    """Classes of one family list what their models take; the general one lists no types, and its
    file gives them all the same, unless its settings leave them out."""
    if type(made).__name__ in _GENERAL and "model_input_names" not in made.init_kwargs:
        return True
    return _TYPES in made.model_input_names


def _lower(backend: tokenizers.Tokenizer) -> None:
    """Put small letters before all else that it does with a text, unless it does so already."""
    found = backend.normalizer
    own: list[Any] = [found] if found is not None else []
    if isinstance(found, normalizers.Sequence):
        parts: Any = found  # its stub does not say that it can be gone through
        own = list(parts)
    if not any(isinstance(one, normalizers.Lowercase) for one in own):
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
