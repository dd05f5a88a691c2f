"""Models and adapters by the names that requests use."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra 'serve' is not installed")

from optc.cli.commands.serving.sources import sources_of
from optc.errors import InputError
from optc.serve.models import AdapterSource, ModelTable

ONE, TWO = Path("artifacts/one"), Path("artifacts/two")


def named(
    artifacts: list[Path], names: list[str], adapters: list[str]
) -> dict[str, tuple[AdapterSource, ...]]:
    sources = sources_of(artifacts, names, adapters, lambda path, found: pytest.fail(str(path)))
    ModelTable(sources)
    return {source.name: source.adapters for source in sources}


def test_names() -> None:
    assert list(named([ONE], [], [])) == ["one"]
    assert list(named([TWO, ONE], [], [])) == ["two", "one"]
    assert list(named([ONE, ONE], ["org/a", "b"], [])) == ["org/a", "b"]
    adapter = AdapterSource("x", Path("f=1"))
    assert named([ONE], [], ["x=f=1"]) == {"one": (adapter,)}
    assert named([ONE, TWO], [], ["two:x=f=1"]) == {"one": (), "two": (adapter,)}
    assert named([ONE], ["org:a"], ["org:a:x=f=1"]) == {"org:a": (adapter,)}


@pytest.mark.parametrize(
    ("artifacts", "names", "adapters", "message"),
    [
        ([ONE, TWO], ["a"], [], "1 names for 2 artifacts"),
        ([ONE, ONE], [], [], "two models are called 'one'"),
        ([ONE], [], ["one=f"], "two models are called 'one'"),
        ([ONE], [], ["f"], "'f' is no adapter of a model"),
        ([ONE], [], ["=f"], "'=f' is no adapter of a model"),
        ([ONE], [], ["x="], "'x=' is no adapter of a model"),
        ([ONE], [], ["two:x=f"], "'two:x=f' is no adapter of a model"),
        ([ONE, TWO], [], ["x=f"], "'x=f' is no adapter of a model"),
    ],
)
def test_what_is_no_name(
    artifacts: list[Path], names: list[str], adapters: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        named(artifacts, names, adapters)
