"""The envelope of our points, and whether a peer's point lies below it."""

from __future__ import annotations

import math

import pytest

from benchmarks.quality_per_byte.curve import NOISE, Curve, engines_verdict, verdict
from benchmarks.quality_per_byte.points import Point


def point(who: str, size: int, kl: float, numerics: str = "weights") -> Point:
    """A point whose label is its size."""
    return Point(who, str(size), numerics, size, 4.0, 4.0, {"kl_mean": kl})


OURS = [point("optc", 100, 0.1), point("optc", 200, 0.001)]


def test_corners_are_what_no_other_point_beats() -> None:
    worse = [point("optc", 150, 0.2), point("optc", 100, 0.3), point("optc", 300, 0.001)]
    curve = Curve.of([*worse, *OURS])
    assert curve == Curve((100, 200), (0.1, 0.001))


def test_between_corners_the_logarithm_is_linear() -> None:
    curve = Curve.of(OURS)
    assert curve.at(150) == pytest.approx(0.01)
    assert curve.at(175) == pytest.approx(math.sqrt(0.01 * 0.001))
    assert curve.at(100) == pytest.approx(0.1)
    assert curve.at(200) == 0.001


def test_behind_the_last_corner_it_is_level_and_before_the_first_there_is_none() -> None:
    curve = Curve.of(OURS)
    assert curve.at(1000) == 0.001
    assert curve.at(99) is None


def test_a_kl_of_zero_is_noise() -> None:
    assert Curve.of([point("optc", 5, 0.0)]).kl == (NOISE,)


def test_it_holds_if_no_peer_lies_below() -> None:
    found = verdict([*OURS, point("peer", 150, 0.0101), point("peer", 250, 0.0011)])
    assert found["held"] is True
    assert found["weights against weights"]["compared"] == 2
    assert found["weights against weights"]["least_ratio"] == pytest.approx(1.01)


def test_a_point_below_is_named_with_the_curves_kl_there() -> None:
    found = verdict([*OURS, point("peer", 150, 0.008), point("peer", 180, 0.5)])
    assert found["held"] is False
    (below,) = found["weights against weights"]["below"]
    assert below["point"] == "peer 150"
    assert below["curve"] == 0.01
    assert below["ratio"] == 0.8


def test_a_smaller_point_than_ours_is_told_not_judged() -> None:
    found = verdict([*OURS, point("peer", 50, 0.2)])
    assert found["held"] is True
    assert found["weights against weights"]["fewer_bytes_than_our_fewest"] == ["peer 50"]


def test_engines_are_held_against_engines_and_only_told_beside_weights() -> None:
    """Our engine loses more than its weights; the peer's weights lie between the two."""
    engine = [point("optc", 100, 0.2, "engine"), point("optc", 200, 0.002, "engine")]
    found = verdict([*OURS, *engine, point("peer", 150, 0.015)])
    assert found["held"] is True
    assert "engines against engines" not in found
    assert found["our engines against peers' weights"]["below"][0]["ratio"] == 0.75
    worse = verdict([*OURS, *engine, point("peer", 150, 0.015, "engine")])
    assert worse["held"] is False


def test_without_points_of_both_nothing_is_judged() -> None:
    assert verdict(OURS) == {"held": None}
    assert verdict([point("peer", 1, 1.0)]) == {"held": None}


def engine(who: str, label: str, size: int, kl: float, numerics: str = "engine") -> Point:
    return Point(who, label, numerics, size, 4.0, None, {"kl_mean": kl})


ENGINES = [engine("optc", "small", 100, 0.1), engine("optc", "large", 200, 0.01)]


@pytest.mark.parametrize(
    ("size", "kl", "beats"),
    [
        (100, 0.1, ["small"]),  # no more of either is enough
        (90, 0.05, ["small"]),
        (90, 0.001, ["small", "large"]),
        (200, 0.01, ["large"]),
        (150, 0.005, ["large"]),
        (101, 0.02, []),  # below the line, and beats neither
        (99, 0.11, []),
        (201, 0.009, []),
        (150, 0.05, []),
    ],
)
def test_an_engine_is_below_if_it_has_no_more_bytes_and_no_more_kl_than_one_of_ours(
    size: int, kl: float, beats: list[str]
) -> None:
    found = engines_verdict([*ENGINES, engine("peer", "p", size, kl)])
    assert found["held"] is not bool(beats)
    assert [entry["beats"] for entry in found["below"]] == ([beats] if beats else [])


def test_a_point_below_the_line_that_beats_neither_is_told() -> None:
    found = engines_verdict([*ENGINES, engine("peer", "p", 101, 0.02)])
    assert found["held"] is True
    assert [entry["point"] for entry in found["between"]] == ["peer p"]


@pytest.mark.parametrize(("size", "held"), [(80, True), (95, False)])
def test_a_file_as_it_came_is_held_against_ours_of_that_file(size: int, held: bool) -> None:
    ours = engine("optc", "int8-fused as given", size, 0.001, "given grid")
    given = engine("peer", "as given", 90, 0.001, "given grid")
    found = engines_verdict([*ENGINES, ours, engine("peer", "p", 300, 0.2), given])
    assert (found["held"], found["compared"]) == (held, 2)


def test_a_file_as_it_came_is_told_where_ours_of_it_is_missing() -> None:
    given = engine("peer", "as given", 90, 0.001, "given grid")
    found = engines_verdict([*ENGINES, engine("peer", "p", 300, 0.2), given])
    assert found["held"] is True
    assert found["compared"] == 1
    (told,) = found["given grid"]
    assert (told["point"], told["beats"]) == ("peer as given", ["small", "large"])


def test_without_peers_or_without_ours_nothing_is_held() -> None:
    assert engines_verdict(ENGINES) == {"held": None}
    assert engines_verdict([engine("peer", "p", 1, 0.1)]) == {"held": None}
