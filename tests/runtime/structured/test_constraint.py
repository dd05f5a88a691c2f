"""One completion's state: masks along drafts, what is forced, where it ends."""

from __future__ import annotations

from typing import Any

import llguidance
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler import NoToken, Sampled, unpacked
from optc.runtime.structured import constraint as module
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.constraint import Constraint
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.structured.grammars import STRUCTURES, mask_of, matcher, words
from tests.runtime.support.texts import byte_level, real_tokenizer

SETTINGS = settings(max_examples=80, deadline=None, derandomize=True)
WORDS = (259 + 31) // 32
BYTES = Tokenizer(byte_level())
TOKENS = words(BYTES, 259)
PLAIN = SamplingParams()
EOS = 1


def start(**asked: Any) -> Constraint:
    structure = SamplingParams(**asked).structure
    assert structure is not None
    return GrammarCompiler(BYTES, 259, [EOS]).constraints(structure, 1)[0]


def drawn(*tokens: int) -> list[Sampled | NoToken]:
    return [Sampled(token, None) for token in tokens]


def ids(text: str) -> list[int]:
    return BYTES.encode(text, add_special_tokens=False)


def filled(constraint: Constraint, drafts: list[int], parents: list[int] | None) -> Any:
    masks = np.full((1 + len(drafts), WORDS), 0xFFFFFFFF, np.uint32)
    constraint.fill(masks, drafts, parents)
    return masks


def path_of(index: int, parents: list[int]) -> list[int]:
    return [*path_of(parents[index], parents), index] if index >= 0 else []


@SETTINGS
@given(st.sampled_from([asked for asked, _ in STRUCTURES]), st.data())
def test_masks_of_trees_are_those_along_their_paths(
    asked: dict[str, Any], data: st.DataObject
) -> None:
    """Half of the drafts are allowed ones, so that paths get long; the others are any token."""
    constraint, reference = start(**asked), matcher(TOKENS, asked)
    for _ in range(data.draw(st.integers(0, 4))):
        allowed = np.flatnonzero(unpacked(mask_of(reference), 259)).tolist()
        token = data.draw(st.sampled_from(allowed))
        reference.consume_token(token)
        taken = constraint.follow(drawn(token), SamplingParams(logprobs=0))
        assert taken == drawn(token)
        if constraint.ended:
            return
    drafts: list[int] = []
    parents: list[int] = []
    states: list[llguidance.LLMatcher | None] = []
    for index in range(data.draw(st.integers(0, 7))):
        parent = data.draw(st.integers(-1, index - 1))
        before = reference if parent < 0 else states[parent]
        token = data.draw(st.integers(0, 258))
        if before is not None and not before.is_stopped() and data.draw(st.booleans()):
            allowed = np.flatnonzero(unpacked(mask_of(before), 259)).tolist()
            token = data.draw(st.sampled_from(allowed))
        after = None if before is None else before.deep_copy()
        states.append(after if after is not None and after.try_consume_tokens([token]) else None)
        drafts.append(token)
        parents.append(parent)
    masks = filled(constraint, drafts, parents)
    assert (masks[0] == mask_of(reference)).all()
    for state, mask in zip(states, masks[1:], strict=True):
        if state is not None and not state.is_stopped():
            assert (mask == mask_of(state)).all()
    kept = [index for index, state in enumerate(states) if state is not None]
    tokens, renumbered = constraint.prune(drafts, parents)
    assert tokens == [drafts[index] for index in kept]
    assert renumbered is not None
    for new, old in enumerate(kept):
        assert [kept[at] for at in path_of(new, renumbered)] == path_of(old, parents)
    if parents == list(range(-1, len(drafts) - 1)):
        ends = states[-1] if states else reference
        after = mask_of(ends) if ends is not None and not ends.is_stopped() else np.zeros(WORDS)
        assert (constraint.mask_after(drafts) == after).all()
    assert (filled(constraint, [], None)[0] == mask_of(reference)).all(), "drafts leave no trace"


def test_the_mask_after_drafts() -> None:
    constraint = start(regex="ab{2}c?")
    assert (
        constraint.mask_after(ids("ab")).tolist() == filled(constraint, ids("ab"), None)[2].tolist()
    )
    assert not constraint.mask_after(ids("ax")).any(), "forbidden"
    assert not constraint.mask_after([*ids("abb"), EOS]).any(), "ended"
    assert (constraint.mask_after([]) == filled(constraint, [], None)[0]).all()


def test_a_chain_is_cut_at_the_first_forbidden_draft() -> None:
    constraint = start(regex="ab*")
    assert constraint.prune([*ids("abb"), *ids("xb")], None) == (ids("abb"), None)
    chain = filled(constraint, ids("ab"), None)
    tree = filled(constraint, ids("ab"), [-1, 0])
    assert (chain == tree).all()


RECORD = {
    "type": "object",
    "properties": {
        "a_long_property_name": {"enum": ["first_value é🙂", "first_other"]},
        "count": {"type": "integer"},
        "day": {"type": "string", "format": "date"},
        "const": {"const": 'a"b\\c\n'},
    },
    "required": ["a_long_property_name", "count", "day", "const"],
    "additionalProperties": False,
}
NAMES = 'start: "import " name "\\nfrom " name " import x"\nname: "numpy" | "os.path" | "osprey"'


@pytest.mark.parametrize(
    ("name", "end"),
    [("pycode", "<|end_of_text|>"), ("stories260K", "</s>"), ("phi-2", "<|endoftext|>")],
)
def test_forced_tokens_are_the_only_ones_that_their_masks_allow(name: str, end: str) -> None:
    """So that not drawing them changes nothing, whatever the logits are."""
    tokenizer = real_tokenizer(name)
    vocab, eos = tokenizer.backend.get_vocab_size(), tokenizer.backend.token_to_id(end)
    compiler = GrammarCompiler(tokenizer, vocab, [eos])
    forced = 0
    for asked in (
        {"json_schema": RECORD},
        {"json_schema": {**RECORD, "x-guidance": {"whitespace_flexible": True}}},
        {"grammar": NAMES},
        *(asked for asked, _ in STRUCTURES),
    ):
        structure = SamplingParams(**asked).structure
        assert structure is not None
        for seed in range(6):
            skipping, plain = compiler.constraints(structure, 2)
            forced += compare(skipping, plain, vocab, np.random.default_rng(seed))
    assert forced > 200


def compare(
    skipping: Constraint, plain: Constraint, vocab: int, random: np.random.Generator
) -> int:
    """Draw at most 60 tokens at random; returns how many more were forced."""
    forced = 0
    for _ in range(60):
        token = int(random.choice(allowed_by(plain, vocab)))
        first, *others = skipping.follow(drawn(token), PLAIN)
        assert first == Sampled(token, None)
        plain.follow([first], SamplingParams(logprobs=0))
        for sampled in others:
            assert isinstance(sampled, Sampled)
            assert allowed_by(plain, vocab) == [sampled.token]
            plain.follow([sampled], SamplingParams(logprobs=0))
        forced += len(others)
        assert plain.ended == skipping.ended
        if plain.ended:
            break
    return forced


def allowed_by(constraint: Constraint, vocab: int) -> list[int]:
    masks = np.zeros((1, constraint.mask_words), np.uint32)
    constraint.fill(masks, [], None)
    return np.flatnonzero(unpacked(masks[0], vocab)).tolist()


def test_forced_tokens_follow_a_draw_and_end_with_the_grammar() -> None:
    constraint = start(choice=["yes, please", "yak"])
    assert constraint.follow(drawn(*ids("y")), PLAIN) == drawn(*ids("y"))
    assert constraint.follow(drawn(*ids("e")), PLAIN) == drawn(*ids("es, please"))
    assert constraint.ended


def test_where_logits_matter_nothing_is_skipped() -> None:
    for params in (SamplingParams(logprobs=0), SamplingParams(logit_bias={3: -1.0})):
        constraint = start(choice=["yes"])
        assert constraint.follow(drawn(*ids("y")), params) == drawn(*ids("y"))
        assert not constraint.ended


def test_tokens_behind_the_end_are_dropped() -> None:
    constraint = start(regex="ab?")
    assert constraint.follow(drawn(*ids("a"), EOS, *ids("b")), PLAIN) == drawn(*ids("a"), EOS)
    assert constraint.ended
    constraint = start(choice=["ab"])
    assert constraint.follow(drawn(*ids("abx")), PLAIN) == drawn(*ids("ab"))


def test_a_row_without_a_token_is_passed_on() -> None:
    constraint = start(regex="ab?")
    assert constraint.follow([*drawn(*ids("a")), NoToken.NAN], PLAIN)[-1] is NoToken.NAN


def test_a_token_that_the_grammar_forbids_is_said_to_be_the_last() -> None:
    constraint = start(regex="ab?")
    taken = constraint.follow(drawn(*ids("aab")), PLAIN)
    assert taken == [*drawn(*ids("aa")), NoToken.NOTHING_ALLOWED]
    assert constraint.error


def test_a_grammar_that_fails_half_way_allows_nothing_and_says_why() -> None:
    constraint = start(grammar='start: "a" endless | "b"\nendless: "c" endless')
    taken = constraint.follow(drawn(*ids("a")), PLAIN)
    assert taken == [*drawn(*ids("a")), NoToken.NOTHING_ALLOWED]
    assert constraint.error.startswith("parser error: Too many items")
    assert not filled(constraint, [], None).any()


def test_a_tokenizer_may_know_more_tokens_than_the_model() -> None:
    structure = SamplingParams(regex="a+").structure
    assert structure is not None
    (constraint,) = GrammarCompiler(BYTES, 200, [EOS]).constraints(structure, 1)
    assert constraint.mask_words == WORDS
    (constraint,) = GrammarCompiler(BYTES, 300, [EOS]).constraints(structure, 1)
    assert constraint.mask_words == 10
    assert allowed_by(constraint, 300) == sorted(ids("a")), "padding is never allowed"


@pytest.mark.parametrize("slow", ["fill", "follow", "prune"])
def test_a_grammar_that_takes_the_engines_time_ends_with_a_reason(
    slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only the matcher moves: 20 ms a call of one kind."""
    now = 0.0
    monkeypatch.setattr(module.time, "thread_time", lambda: now)
    constraint = start(regex="[a-z]*")
    reach = {"fill": "_fill_row", "follow": "_followed", "prune": "_reach"}[slow]
    work = getattr(constraint, reach)

    def slowly(*arguments: Any) -> Any:
        nonlocal now
        now += 0.02
        return work(*arguments)

    monkeypatch.setattr(constraint, reach, slowly)
    params, token = SamplingParams(logprobs=1), ids("a")[0]
    steps = 0
    while filled(constraint, [], None).any():
        assert constraint.prune([token], None) == ([token], None)
        assert constraint.follow(drawn(token), params) == drawn(token)
        steps += 1
        assert steps < 1000
    assert steps > 5, "a few slow steps are allowed"
    assert constraint.error.startswith("it takes more than 10 ms a token")


def test_a_quick_grammar_may_go_on_for_ever() -> None:
    constraint = start(regex="[a-z]*")
    for _ in range(300):
        assert filled(constraint, [], None).any()
        constraint.follow(drawn(ids("a")[0]), SamplingParams(logprobs=1))
    assert not constraint.error
