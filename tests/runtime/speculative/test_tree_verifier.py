"""The verifier on trees: its rule, and that its distribution is the model's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler import NoToken, Row, Sampled, sample
from optc.runtime.step.verifier import Verdict
from tests.runtime.speculative.verifying import verify_logits

#: A model of three tokens whose logits depend on the last one.
LOGITS = np.log(np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2]], np.float32))
#: The chi-squared value that one in 10^5 correct verifiers exceeds, with 26 degrees of freedom.
LIMIT = 69.2

#: Drafts and their parents.
Tree = tuple[list[int], list[int]]
Verify = Callable[[Tree, Row], Verdict]

#: Two tokens, then what follows the first in two ways, and what follows that.
BUSHY: Tree = ([0, 1, 2, 0, 1], [-1, -1, 0, 0, 2])
#: All there is, two tokens deep.
FULL: Tree = ([0, 1, 2] + [0, 1, 2] * 3, [-1] * 3 + [0] * 3 + [1] * 3 + [2] * 3)
#: The same token twice, and a chain that is not in the order of rows.
ODD: Tree = ([2, 2, 0, 1, 1], [-1, -1, 1, 0, 3])


def row(known: list[int], tree: Tree, seed: int = 0, **params: object) -> Row:
    sampling = SamplingParams(**{"temperature": 1.0, **params})  # type: ignore[arg-type]
    return Row(sampling, seed, 0, np.array(known + tree[0], np.int32), 1)


def verify(tree: Tree, of: Row) -> Verdict:
    """The verifier, with the logits that the model gives behind each token of the tree."""
    tokens, parents = tree
    known = of.tokens[: len(of.tokens) - len(tokens)].tolist()
    logits = LOGITS[[known[-1], *tokens]]
    drafted = np.array(tokens, np.int32)
    return verify_logits(logits, of, drafted, parents=parents)


def drawn(verdict: Verdict) -> list[int]:
    return [sampled.token for sampled in verdict.drawn if isinstance(sampled, Sampled)]


def test_the_path_of_the_models_own_tokens_is_followed() -> None:
    verdict = verify(BUSHY, row([0], BUSHY, temperature=0))
    assert drawn(verdict) == [0, 0, 0], "its most likely token after 0 is 0"
    assert verdict.path == (0, 3), "the second 0 is the fourth draft"
    tree: Tree = ([1, 2], [-1, -1])
    verdict = verify(tree, row([1], tree, temperature=0))
    assert (drawn(verdict), verdict.path) == ([2, 0], (1,)), "a sibling that comes later"
    assert verdict.accepted == 1


def test_a_child_of_another_branch_is_not_followed() -> None:
    tree: Tree = ([1, 0, 2], [-1, -1, 0])  # 2 follows 1, not 0
    verdict = verify(tree, row([0], tree, temperature=0))
    assert (drawn(verdict), verdict.path) == ([0, 0], (1,))


def test_penalties_follow_the_path_and_not_the_rows() -> None:
    flat = np.tile(np.array([[0.0, 1.0, 0.9]], np.float32), (4, 1))
    tree: Tree = ([2, 1, 2], [-1, -1, 1])  # rejected 2; then 1, and 2 after it
    penalized = row([0], tree, temperature=0, presence_penalty=0.5)
    drafted = np.array(tree[0], np.int32)
    verdict = verify_logits(flat, penalized, drafted, parents=tree[1])
    assert (drawn(verdict), verdict.path) == ([1, 2, 1], (1, 2))
    assert penalized.tokens.tolist() == [0, 2, 1, 2], "the caller's tokens are untouched"


def test_masks_belong_to_rows() -> None:
    tree: Tree = ([0, 1, 2], [-1, -1, 1])
    flat = np.zeros((4, 3), np.float32)
    masks = [np.array([bits], np.uint32) for bits in (0b010, 0b001, 0b100, 0)]
    of, drafted = row([0], tree, temperature=0), np.array(tree[0], np.int32)
    verdict = verify_logits(flat, of, drafted, masks, tree[1])
    assert verdict == Verdict([Sampled(1, None), Sampled(2, None), NoToken.NOTHING_ALLOWED], (1, 2))


def plain(seed: int, count: int) -> list[int]:
    path = [0]
    for _ in range(count):
        sampled = sample(LOGITS[path[-1:]], [row(path, ([], []), seed)])[0]
        assert isinstance(sampled, Sampled)
        path.append(sampled.token)
    return path[1:]


def speculated(rule: Verify, seed: int, tree: Tree) -> list[int]:
    """Three tokens: one step with the tree, and plain ones until there are enough."""
    output = drawn(rule(tree, row([0], tree, seed)))
    while len(output) < 3:
        output += drawn(rule(([], []), row([0, *output], ([], []), seed)))
    return output[:3]


@pytest.mark.parametrize("tree", [BUSHY, FULL, ODD])
def test_seeded_tokens_are_those_of_plain_decoding(tree: Tree) -> None:
    for seed in range(200):
        assert speculated(verify, seed, tree) == plain(seed, 3)


def chi_squared(rule: Verify, tree: Tree, seeds: int = 1000) -> float:
    """Of the triples of first three tokens against the model's own distribution."""
    counts = np.zeros((3, 3, 3))
    for seed in range(seeds):
        counts[tuple(speculated(rule, seed, tree))] += 1
    chance = np.exp(LOGITS)
    expected = seeds * chance[0][:, None, None] * chance[:, :, None] * chance[None]
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("tree", [BUSHY, FULL, ODD])
def test_the_distribution_is_the_models(tree: Tree) -> None:
    assert chi_squared(verify, tree) < LIMIT


def following_rows(tree: Tree, of: Row) -> Verdict:
    """Wrong: takes the row after the accepted one for its logits, as in a chain."""
    tokens, _ = tree
    verdict = verify(tree, of)
    if not verdict.path or verdict.path[-1] + 2 > len(tokens):
        return verdict
    known = of.tokens[: len(of.tokens) - len(tokens)].tolist()
    after = LOGITS[[known[-1], *tokens]][[verdict.path[-1] + 2]] if tokens else LOGITS[:1]
    path = [*known, *drawn(verdict)[:-1]]
    last = sample(after, [of._replace(tokens=np.array(path, np.int32))])
    return Verdict([*verdict.drawn[:-1], *last], verdict.path)


def best_of_siblings(tree: Tree, of: Row) -> Verdict:
    """Wrong: gives every sibling a try of its own, each with noise of its own."""
    tokens, parents = tree
    known = of.tokens[: len(of.tokens) - len(tokens)].tolist()
    for index, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        tried = of._replace(tokens=np.array(known, np.int32), completion=index + 1)
        if parent == -1 and sample(LOGITS[known[-1:]], [tried])[0] == Sampled(token, None):
            after = row([*known, token], ([], []), of.seed)
            return Verdict([Sampled(token, None), *verify(([], []), after).drawn], (index,))
    return verify(([], []), row(known, ([], []), of.seed))


@pytest.mark.parametrize("wrong", [following_rows, best_of_siblings])
def test_a_wrong_verifier_is_found(wrong: Verify) -> None:
    assert chi_squared(wrong, BUSHY) > LIMIT
