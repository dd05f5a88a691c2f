"""Engines of named tensors for tests of the server."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from optc.errors import EngineError
from optc.runtime.audio.conventions import Conventions
from optc.runtime.audio.mel import LogMel
from optc.runtime.encoded.tensor_decoder import TensorDecoder
from optc.runtime.executable.tensors import Array
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec
from optc.runtime.speech.tensor_writer import TensorWriter
from optc.runtime.speech.transcriber import Transcriber
from optc.runtime.tensors.embedder import Embedder
from optc.runtime.tensors.engine import TensorEngine

WIDTH = 4
_MANY = {"batch": DimRange(1, 64), "tokens": DimRange(1, 64)}
TEXTS = TensorsInterface(
    inputs=(
        TensorSpec("input_ids", "int64", ("batch", "tokens")),
        TensorSpec("attention_mask", "int64", ("batch", "tokens")),
    ),
    outputs=(TensorSpec("embeddings", "float32", ("batch", WIDTH)),),
    symbols=_MANY,
)
SUMS = TensorsInterface(
    inputs=(TensorSpec("x", "float32", ("batch", 2)), TensorSpec("flag", "bool", ())),
    outputs=(
        TensorSpec("sum", "float32", ("batch",)),
        TensorSpec("most", "float16", ("batch",)),
        TensorSpec("flag", "bool", ()),
    ),
    symbols={"batch": DimRange(1, 64)},
)


class Powers:
    """Embeds a text by the mean of powers of its ids; waits first where it is told to."""

    def __init__(self, *, batch_invariant: bool = True) -> None:
        self.batch_invariant = batch_invariant
        self.may_go = threading.Event()
        self.may_go.set()
        self.batches: list[int] = []

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.may_go.wait()
        self.batches.append(len(inputs["input_ids"]))
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        powers = np.stack([ids.astype(np.float32) ** n for n in range(WIDTH)], -1) / 10
        weights = mask[..., None] / mask.sum(-1)[:, None, None]
        return {"embeddings": (powers * weights).sum(1).astype(np.float32)}

    def close(self) -> None:
        pass


class Sums:
    """Adds what is not negative; waits first where it is told to."""

    batch_invariant = True

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.may_go.set()
        self.calls = 0

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.may_go.wait()
        self.calls += 1
        x = inputs["x"]
        if (x < 0).any():
            raise EngineError("it fails at these inputs: x is negative", where="toy")
        with np.errstate(over="ignore"):
            most = x.max(1).astype(np.float16)
            return {"sum": x.sum(1), "most": most, "flag": inputs["flag"]}

    def close(self) -> None:
        self.may_go.set()


def letters() -> Tokenizer:
    """One token a letter, at most eight of a text."""
    found = Tokenizer(models.WordLevel({c: i for i, c in enumerate("?abcdefgh")}, unk_token="?"))
    found.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    found.enable_padding()
    found.enable_truncation(8)
    return found


def embedder(executable: Powers | None = None) -> Embedder:
    """One token a letter."""
    info = {"name": "toy", "backend": "toys"}
    return Embedder(executable or Powers(), TEXTS, info, letters())


def adder(executable: Sums | None = None) -> TensorEngine:
    """Adds two numbers."""
    info: Mapping[str, Any] = {"name": "toy", "backend": "toys"}
    return TensorEngine(executable or Sums(), SUMS, info)


#: Words 0 to 3, the end, the start, languages, tasks, no times, and times of 0.02 s.
SPEECH = Conventions(
    features=LogMel(rate=1000, mels=4, window=50, hop=10, seconds=1),
    start=5,
    end=4,
    languages={"en": 6, "de": 7},
    tasks={"transcribe": 8, "translate": 9},
    no_timestamps=10,
)
_TIME, _SIZE = 11, 11 + 51


class Hears:
    """An encoder that hears nothing."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"cross_0": np.zeros((len(inputs["input_features"]), 1, 2, 1), np.float32)}

    def close(self) -> None:
        pass


class Says:
    """A decoder that says two words, or 3 and the second where it translates; its past are the
    tokens. It hears German."""

    def __init__(self, first: int = 1, second: int = 2) -> None:
        self.words = (first, second)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        tokens = inputs["input_ids"].astype(np.float32)[:, None, :, None]
        whole = np.concatenate([inputs["past_0"], tokens], axis=2)
        logits = np.zeros((len(whole), tokens.shape[2], _SIZE), np.float32)
        past = inputs["past_0"].shape[2]
        for row, said in zip(logits, whole[:, 0, :, 0].astype(int).tolist(), strict=True):
            for place, behind in enumerate(row, past + 1):
                behind[self._next(said[:place])] = 9
        return {"logits": logits, "past_0_out": whole}

    def _next(self, said: list[int]) -> int:
        if len(said) == 1:
            return 7
        words = [3 if 9 in said else self.words[0], self.words[1]]
        timed = 10 not in said
        script = [_TIME, *words, _TIME + 20, 4] if timed else [*words, 4]
        return script[len(said) - (3 if timed else 4)]

    def close(self) -> None:
        pass


def writer(first: int = 1, second: int = 2, conventions: Conventions = SPEECH) -> Transcriber:
    """A model of speech that says two words."""
    words = {"nought": 0, "hello": 1, "world": 2, "goodbye": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="nought"))
    return Transcriber(
        Hears(),
        TensorWriter(TensorDecoder(Says(first, second))),
        conventions,
        tokenizer,
        {"name": "toy"},
    )
