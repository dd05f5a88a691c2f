"""A node stands out if it lies beneath its peers by more than their spread explains."""

from __future__ import annotations

import dataclasses

import pytest

from optc.proof.gates.bisect.node_errors import NodeError, first_broken, judge_nodes


def nodes(**sqnr: float) -> list[NodeError]:
    """Nodes by value: ``o_1`` is of the kind ``o``; all are matmuls but those of ``n``."""
    return [
        NodeError(value, value, "norm" if value[0] == "n" else "matmul", value[0], db)
        for value, db in sqnr.items()
    ]


def outliers(**sqnr: float) -> list[str]:
    return [one.value for one in judge_nodes(nodes(**sqnr)) if one.outlier]


def named(**sqnr: float) -> str:
    found = first_broken(judge_nodes(nodes(**sqnr)))
    assert found is not None
    return found.value


def test_peers_are_the_same_kind_in_other_layers() -> None:
    many = {f"d_{i}": 20.0 for i in range(4)}
    assert outliers(o_0=40, o_1=40, o_2=33, o_3=40, **many) == ["o_2"]
    assert outliers(o_0=40, o_1=40, o_2=35, o_3=40, **many) == [], "less than six decibels"
    assert outliers(o_0=40, o_1=40, o_2=34, o_3=40, **many) == [], "no more than six"
    found = {one.value: one.peers_db for one in judge_nodes(nodes(o_0=40, o_1=38, o_2=33, o_3=39))}
    assert found["o_2"] == 39


def test_what_has_no_peer_of_its_kind_is_compared_with_its_operator() -> None:
    assert outliers(h_0=10, o_0=40, o_1=41, o_2=40) == ["h_0"]
    assert outliers(n_0=10, o_0=40, o_1=41, o_2=40) == [], "there is no other norm"


def test_outputs_of_a_node_are_no_peers_of_each_other() -> None:
    """A sum is exact where the norm of it, the second output, is not."""
    sums, norms = (nodes(o_0=db, o_1=db, o_2=db) for db in (100, 20))
    both = sums + [dataclasses.replace(one, output=1) for one in norms]
    judged = judge_nodes(both)
    assert not any(one.outlier for one in judged)
    first = first_broken(judged)
    assert first is not None
    assert (first.value, first.output) == ("o_0", 1)


def test_a_wide_spread_explains_more() -> None:
    assert outliers(o_0=20, o_1=26, o_2=32, o_3=38, o_4=14) == []


@pytest.mark.parametrize("bad", [33.0, -100.0])
def test_the_one_that_stands_out_most_is_named(bad: float) -> None:
    assert named(o_0=40, o_1=20, o_2=40, o_3=40, d_0=50, d_1=50, d_2=50, d_3=bad) == (
        "o_1" if bad > 0 else "d_3"
    )


def test_where_none_stands_out_the_first_of_the_worst_kind_is_named() -> None:
    assert named(o_0=40, o_1=40, o_2=40, d_0=22, d_1=20, d_2=21) == "d_0"
    assert first_broken([]) is None
