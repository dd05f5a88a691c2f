"""Options as data: values are made uniform, and unknown names are refused with the nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from optc.system.options.option import flag_name, normalize, option, options_of, with_changes


@dataclass(frozen=True, kw_only=True)
class Wishes:
    folder: Path | None = option(None, "Where.", kind="path", metavar="DIR")
    names: Sequence[str] = option((), "Who.", kind="texts")
    several: Sequence[str] | None = option(None, "Who else.", kind="texts")
    dry_run: bool = option(False, "Do nothing.", kind="flag")
    note: str = ""

    def __post_init__(self) -> None:
        normalize(self)


def test_options_are_the_fields_that_say_so() -> None:
    assert list(options_of(Wishes)) == ["folder", "names", "several", "dry_run"]
    assert options_of(Wishes)["folder"].metavar == "DIR"
    assert flag_name("dry_run") == "--dry-run"


@pytest.mark.parametrize("names", ["a", ["a"], ("a",), iter(["a"])])
def test_one_text_or_any_number_of_them_is_a_tuple(names: Sequence[str]) -> None:
    assert Wishes(names=names).names == ("a",)
    assert Wishes().several is None


def test_a_text_is_a_path() -> None:
    assert Wishes(folder="a/b").folder == Path("a/b")  # type: ignore[arg-type]
    assert Wishes(folder=Path("a")).folder == Path("a")


def test_changes_are_normalized_and_leave_the_rest() -> None:
    changed = with_changes(Wishes(dry_run=True), {"folder": "x", "names": "n"})
    assert changed == Wishes(dry_run=True, folder=Path("x"), names=("n",))


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"no option 'dry_rum' \(did you mean dry_run\?\)"):
        with_changes(Wishes(), {"dry_rum": True})
    with pytest.raises(TypeError, match="no option 'xyz': options are folder, names"):
        with_changes(Wishes(), {"xyz": 1})
    with pytest.raises(TypeError, match=r"no option 'dry_run': options are names$"):
        with_changes(Wishes(), {"dry_run": True}, ["names"])


def test_a_default_that_is_a_class_is_made_for_each_object() -> None:
    @dataclass(frozen=True)
    class Biased:
        bias: dict[int, float] = option(dict, "Added.", kind="biases")

    first, second = Biased(), Biased()
    first.bias[5] = 1.0
    assert second.bias == {}
    assert options_of(Biased)["bias"].kind == "biases"
