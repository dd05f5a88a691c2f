"""The fastest tests come first, and of one function no second row before another function."""

from __future__ import annotations

from benchmarks.mutants.choice import FILE_S, chosen

RUNNERS = {
    "a.py::f[1]": 0.1,
    "a.py::f[2]": 0.2,
    "a.py::g": 3.0,
    "b.py::h[x::y[z]]": 1.0,
    "c.py::k": 0.0,
}


def test_each_function_comes_once_before_second_rows() -> None:
    found = chosen(RUNNERS, 100.0, {"c.py"})
    assert found == ["a.py::f[1]", "b.py::h[x::y[z]]", "a.py::g", "a.py::f[2]"]


def test_the_budget_counts_tests_and_files() -> None:
    two = 1.1 + 2 * FILE_S
    assert chosen(RUNNERS, two + 3.0, {"c.py"}) == ["a.py::f[1]", "b.py::h[x::y[z]]", "a.py::g"]
    assert chosen(RUNNERS, two + 2.9, {"c.py"}) == ["a.py::f[1]", "b.py::h[x::y[z]]"]


def test_one_is_asked_whatever_it_takes() -> None:
    assert chosen({"a.py::f": 9.0}, 1.0, ()) == ["a.py::f"]
    assert chosen({"a.py::f": 9.0}, 1.0, {"a.py"}) == []
