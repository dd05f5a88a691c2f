"""Evaluation text: documents become windows of token ids.

Convention: every text is encoded without special tokens and framed as BOS … EOS (each only if the
model has it), a conversation is what the model's chat template makes of it. The documents are
joined to one stream, and evenly spaced windows of it are scored. A window of S + 1 ids gives S rows
of logits and S predicted tokens; nothing before the window is seen. Where the tokenizer puts BOS
before every text, it takes the place of a window's first id, as prompts begin: models that never
saw a text without it lean on it (attention sinks, Xiao et al., 2023), and lose several times as
much in the first tokens after another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from optc.errors import InputError
from optc.proof.conversations.conversation import Conversation
from optc.proof.conversations.read import Document, read_lines, read_texts
from optc.proof.conversations.tokens import kept_stream, window_start
from optc.runtime.executable.executable import Int32

if TYPE_CHECKING:  # brings the tokenizers
    from optc.proof.conversations.chat import Chat

#: Tokens scored per window and number of windows, unless the model is too large (`windows_for`).
WINDOW_TOKENS = 512
MAX_WINDOWS = 60
#: Multiply-adds that the float32 reference spends on windows, some ten seconds on two cores; and
#: the most that it spends to reach `ENOUGH_WINDOWS`, about a minute.
REFERENCE_MACS = 7 * 10**11
MOST_MACS = 5 * 10**12
#: Windows by which large models are judged, and fewest. KL of windows has a standard deviation of a
#: fifth of its mean (SmolLM2, int8-fused): the mean of eight has one of 7 %, and reports state the
#: interval.
ENOUGH_WINDOWS, LEAST_WINDOWS = 8, 4


@dataclass(frozen=True)
class EvalWindows:
    """Token windows to score.

    Attributes:
        ids: [W, S + 1] token ids; row w predicts ``ids[w, 1:]`` from ``ids[w, :-1]``.
        source: Where the ids come from: a file name, the shipped text, or random ids.
        convention: How windows and BOS were chosen, one sentence.
        tokenizer_file: What gives ids their texts; None for random ids.
    """

    ids: Int32
    source: str
    convention: str
    tokenizer_file: Path | None = None

    @property
    def tokens(self) -> int:
        """Number of predicted tokens, W * S."""
        return int(self.ids.shape[0] * (self.ids.shape[1] - 1))


def windows_for(parameters: int, window_tokens: int = WINDOW_TOKENS) -> int:
    """Number of windows that the float32 reference of a model of this size can afford, 4 to 60."""
    one = max(parameters, 1) * window_tokens
    enough = min(ENOUGH_WINDOWS, MOST_MACS // one)
    return int(min(MAX_WINDOWS, max(LEAST_WINDOWS, enough, REFERENCE_MACS // one)))


def read_documents(path: Path) -> list[str]:
    """The texts of a ``.jsonl`` file (one ``{"text": …}`` a line) or of one plain text.

    Raises:
        InputError: The file cannot be read, is not UTF-8, or a line is not such an object.
    """
    return _texts(read_texts(path))


def digest_text(path: Path) -> str:
    """sha256 of a text's bytes, in hex.

    Raises:
        InputError: It cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read the text: {error.strerror}", where=str(path)) from error


def default_documents() -> list[str]:
    """The text shipped with optc: public-domain prose and code of this project."""
    content = (files("optc.proof.reference") / "default_text.jsonl").read_text("utf-8")
    return _texts(read_lines(content, "default_text.jsonl"))


def calibration_text() -> Path:
    """The text shipped with optc to calibrate with: public-domain prose, documentation and code of
    this project. No line of the text that gates judge by is in it."""
    return Path(__file__).with_name("calibration_text.jsonl")


def _texts(documents: Iterable[Document]) -> list[str]:
    texts: list[str] = []
    for one in documents:
        if isinstance(one, Conversation):
            raise InputError("a conversation, where only texts are read", where=one.where)
        texts.append(one)
    return texts


def cut_windows(stream: Int32, window_tokens: int, windows: int, start: int | None = None) -> Int32:
    """Evenly spaced windows [W, S + 1] of a stream; they overlap only if the stream is short.

    Args:
        stream: Token ids.
        window_tokens: S.
        windows: W, unless the stream is short.
        start: Of `window_start`: takes the place of each window's first token.

    Raises:
        InputError: The stream has fewer than two tokens.
    """
    if len(stream) < 2:
        raise InputError("the text has fewer than two tokens", where="evaluation text")
    size = min(window_tokens, len(stream) - 1)
    count = max(1, min(windows, -(-(len(stream) - 1) // size)))
    starts = np.linspace(0, max(0, len(stream) - size - 2), count).astype(np.int64)
    ids = np.stack([stream[place : place + size + 1] for place in starts])
    if start is not None:
        ids[:, 0] = start
    return ids


def eval_windows(
    *,
    vocab_size: int,
    max_context: int,
    parameters: int,
    tokenizer_file: Path | None,
    bos: int | None = None,
    eos: int | None = None,
    text_file: Path | None = None,
    chat: Chat | None = None,
) -> EvalWindows:
    """The windows that gates and `evaluate` score.

    Args:
        vocab_size: V of the model.
        max_context: Longest sequence of the engine, in tokens; windows are no longer.
        parameters: Number of weights; large models get fewer windows (`windows_for`).
        tokenizer_file: tokenizer.json, or None: then random ids are scored, and it is said.
        bos: Id put before every document, if the model has one.
        eos: Id put after every document, if the model has one.
        text_file: ``.jsonl`` or plain text; None takes the shipped text. If it has texts, they are
            taken; else its conversations are, whole.
        chat: Renders conversations; None where the model has no template.

    Raises:
        InputError: Unreadable text or tokenizer, or ids beyond the vocabulary.
    """
    size = min(WINDOW_TOKENS, max_context)
    count = windows_for(parameters, size)
    if tokenizer_file is None:
        if text_file is not None:
            raise InputError(
                "the model has no tokenizer.json to encode the text with",
                where=str(text_file),
                hint="leave --eval-text out; random token ids are scored then",
            )
        return _random_windows(vocab_size, size, count)
    documents: list[Document] = list(default_documents())
    if text_file is not None:
        read = read_texts(text_file)
        documents = [one for one in read if isinstance(one, str)] or read
    stream = kept_stream(documents, tokenizer_file, bos, eos, chat)
    if stream.size and int(stream.max()) >= vocab_size:
        raise InputError(
            f"the tokenizer gives id {int(stream.max())}, the model knows {vocab_size} ids",
            where=str(tokenizer_file),
            hint="tokenizer and model do not belong together",
        )
    start = window_start(tokenizer_file, bos)
    ids = cut_windows(stream, size, count, start)
    said = "no BOS added at a window's start" if start is None else "each window begins with BOS"
    return EvalWindows(
        ids,
        "shipped default text" if text_file is None else text_file.name,
        f"{ids.shape[0]} evenly spaced windows of {ids.shape[1] - 1} tokens out of {len(stream)}; "
        f"documents joined with {_frame(bos, eos)}; {said}",
        tokenizer_file,
    )


def _random_windows(vocab_size: int, size: int, count: int) -> EvalWindows:
    ids = np.random.default_rng(0).integers(0, vocab_size, (count, size + 1), np.int32)
    return EvalWindows(
        ids,
        "random token ids (the model has no tokenizer)",
        f"{count} windows of {size} uniformly random token ids, seed 0",
    )


def _frame(bos: int | None, eos: int | None) -> str:
    names = [name for name, token in (("BOS", bos), ("EOS", eos)) if token is not None]
    return " and ".join(names) or "nothing between"
