"""A ``tokenizer.json`` with some of its tokens, numbered anew."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from optc.compiling.vocabulary.bpe import BytePairs
from optc.errors import UnsupportedError

#: Post-processors that name no ids.
_WITHOUT_IDS = frozenset({"ByteLevel"})


def kept_ids(
    data: Mapping[str, Any],
    counts: Mapping[int, int],
    min_count: int,
    always: Collection[int],
    where: str,
) -> list[int]:
    """The ids that stay, ascending: of tokens that a text uses, of those that spell any text, of
    all added (special) ones and some more, and of what the merges of all these need.

    Args:
        data: The tokenizer.
        counts: How often the text has each id.
        min_count: Tokens that it has less often do not stay for it.
        always: Ids that stay in any case: of the tokens that begin and end texts.
        where: Names the tokenizer's file in messages.

    Raises:
        UnsupportedError: It is no byte-pair encoding.
        InputError: It is damaged.
    """
    pairs = BytePairs.read(data["model"], where)
    used = {
        token
        for token, number in pairs.vocab.items()
        if number in always or counts.get(number, 0) >= min_count
    }
    added = {one["content"] for one in data["added_tokens"]}
    tokens = pairs.closed(used | pairs.alphabet() | (added & pairs.vocab.keys()))
    ids = {pairs.vocab[token] for token in tokens}
    return sorted(ids.union(always, (int(one["id"]) for one in data["added_tokens"])))


def trimmed(data: Mapping[str, Any], kept: Sequence[int], where: str) -> dict[str, Any]:
    """The tokenizer with the tokens ``kept``, whose new ids are their places in it.

    Raises:
        UnsupportedError: It is no byte-pair encoding, or a part of it names ids in a way that is
            not known.
        InputError: It is damaged.
    """
    new = {old: place for place, old in enumerate(kept)}
    pairs = BytePairs.read(data["model"], where)
    vocab = {token: new[old] for token, old in pairs.vocab.items() if old in new}
    merges = [list(pair) for pair in pairs.merges_among(set(vocab))]
    found = {
        **data,
        "added_tokens": [{**one, "id": new[one["id"]]} for one in data["added_tokens"]],
        "model": {**data["model"], "vocab": vocab, "merges": merges},
        "post_processor": _post_processor(data.get("post_processor"), new, where),
    }
    if data.get("padding"):
        padding = data["padding"]
        found["padding"] = {**padding, "pad_id": new.get(padding["pad_id"], 0)}
    return found


def _post_processor(
    part: Mapping[str, Any] | None, new: Mapping[int, int], where: str
) -> dict[str, Any] | None:
    if part is None:
        return None
    kind = part["type"]
    if kind in _WITHOUT_IDS:
        return dict(part)
    if kind == "Sequence":
        inside = [_post_processor(one, new, where) for one in part["processors"]]
        return {**part, "processors": inside}
    if kind == "TemplateProcessing":
        named = {
            name: {**one, "ids": [new[old] for old in one["ids"]]}
            for name, one in part["special_tokens"].items()
        }
        return {**part, "special_tokens": named}
    if kind in ("BertProcessing", "RobertaProcessing"):
        ends = {key: [part[key][0], new[part[key][1]]] for key in ("sep", "cls")}
        return {**part, **ends}
    raise UnsupportedError(
        f"a post-processor of the kind {kind} may name ids that are not found",
        where=where,
        hint="take a recipe that keeps all tokens",
    )
