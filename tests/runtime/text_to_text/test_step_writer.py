"""A decoder of steps writes the texts that one of whole batches writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from optc.errors import EngineError
from optc.runtime.encoded.attending import Attending
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Float32, Int32
from optc.runtime.settings import ServeSettings
from optc.runtime.text_to_text.conventions import TextConventions
from optc.runtime.text_to_text.params import TextToTextParams
from optc.runtime.text_to_text.rules import Rules
from optc.runtime.text_to_text.step_writer import StepWriter, writer_of
from optc.runtime.text_to_text.writer import Read, TensorWriter
from tests.runtime.encoded.test_attending import Served
from tests.runtime.encoded.toy import spec_of_many

START, END, SIZE = 0, 1, 24
TEXTS = [[5, 6, 7], [2], [9, 9, 9, 9, 9, 9], [3, 4], [12, 11, 10, 9]]


def logits(own: npt.NDArray[Any], states: npt.NDArray[Any]) -> Float32:
    """Seeded by the latest two tokens and the states; an end grows likelier."""
    seed = [*(int(one) for one in own[-2:]), int(states.sum())]
    found = 2 * np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
    found[END] += len(own) / 3
    return found


class Steps(Served):
    spec = spec_of_many(SIZE)

    def logits(self, own: Int32, states: Int32) -> Float32:
        return logits(own, states)


class Batches:
    """The same decoder over whole batches; its past are the tokens."""

    batch_invariant = True

    def __init__(self) -> None:
        self.closed = False
        self.sizes: list[int] = []

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        tokens = inputs["input_ids"].astype(np.float32)[:, None, :, None]
        self.sizes.append(len(tokens))
        whole = np.concatenate([inputs["past_0"], tokens], axis=2)
        first = whole.shape[2] - tokens.shape[2]
        found = [
            [logits(own[: at + 1], cross) for at in range(first, len(own))]
            for own, cross in zip(
                whole[:, 0, :, 0].astype(int), inputs["cross_0"][:, 0, :, 0], strict=True
            )
        ]
        return {"logits": np.array(found, np.float32), "past_0_out": whole, "past_1_out": whole}

    def close(self) -> None:
        self.closed = True


def read(sources: Sequence[Sequence[int]]) -> Read:
    """States are the tokens."""
    states = np.zeros((len(sources), 1, max(map(len, sources)), 1), np.float32)
    for row, source in zip(states, sources, strict=True):
        row[0, : len(source), 0] = source
    return {"cross_0": states, "cross_1": states}


def rules(most: int = 9, first: int | None = None, **known: Any) -> Rules:
    return Rules(TextConventions(start=START, ends=(END,), **known), START, first, most)


@pytest.fixture(scope="module")
def steps() -> Iterator[StepWriter]:
    made = writer_of(
        Engine(
            lambda: Attending(Steps()),  # type: ignore[arg-type]
            ServeSettings(block_size=16),
            eos_token_ids=[END],
        )
    )
    assert isinstance(made, StepWriter)
    yield made
    made.close()
    with pytest.raises(EngineError):
        made.write([[1]], read, rules(), TextToTextParams())


RULES = [
    rules(),
    rules(1),
    rules(2, first=7),
    rules(1, first=7),
    rules(1, first=END),
    rules(first=7, suppressed_first=(3, 4, 5)),
    rules(4, last=END),
    rules(suppressed=(2, 5, 8), least_tokens=4),
    rules(least_length=6, no_repeat=1),
    rules(repetition_penalty=3.0),
]


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("how", RULES, ids=range(len(RULES)))
def test_the_same_texts(steps: StepWriter, how: Rules, size: int) -> None:
    params = TextToTextParams(batch_size=size)
    found = steps.write(TEXTS, read, how, params)
    assert found == TensorWriter(Batches()).write(TEXTS, read, how, params)
    assert all(0 < len(one.tokens) <= how.most for one in found)
    assert all(one.ended == (one.tokens[-1] == END) for one in found)
    if how.first is not None:
        assert {one.tokens[0] for one in found} == {how.first}


@pytest.mark.parametrize("how", RULES, ids=range(len(RULES)))
def test_the_same_likeliest_tokens(steps: StepWriter, how: Rules) -> None:
    """At each place, and behind the text; of one that it wrote itself, its own."""
    plain, params = TensorWriter(Batches()), TextToTextParams()
    for text, one in zip(TEXTS, steps.write(TEXTS, read, how, params), strict=True):
        tokens = one.tokens[: how.most - 1]
        found = steps.likeliest(text, tokens, read, how)
        assert found == plain.likeliest(text, tokens, read, how)
        assert found[: len(tokens)] == tokens
        assert len(found) == len(tokens) + 1


def test_of_many_texts_only_some_have_states_at_a_time(steps: StepWriter) -> None:
    many = [[one % 20 + 2, one // 20 + 2] for one in range(150)]
    params = TextToTextParams(batch_size=50)
    found = steps.write(many, read, rules(3), params)
    assert found == TensorWriter(Batches()).write(many, read, rules(3), params)


def test_texts_that_have_ended_leave_the_batch() -> None:
    """Once they are half of it: the others run on without them."""
    engine = Batches()
    writer = writer_of(engine)
    assert isinstance(writer, TensorWriter)
    found = writer.write(TEXTS, read, rules(9), TextToTextParams())
    lengths = [len(one.tokens) for one in found]
    rows, expected = len(TEXTS), []
    for step in range(max(lengths)):
        expected.append(rows)
        left = sum(length > step + 1 for length in lengths)
        rows = left if left <= rows // 2 else rows
    assert engine.sizes == expected
    assert len(set(engine.sizes)) > 1
    writer.close()
    assert engine.closed
