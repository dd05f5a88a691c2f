"""Packages of passes that others install beside optc."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import distributions, entry_points
from pathlib import Path

import pytest

from optc.errors import InputError, UnavailableError
from optc.ir.forms.decoder import Dense, Exported
from optc.ir.forms.ragged import RaggedStep
from optc.ir.forms.static_kv import StaticKV
from optc.ir.pipeline import registry
from optc.ir.pipeline.phase import Effect


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages: one with passes, whose module is to be written."""
    info = tmp_path / "extra_passes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra-passes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[optc.passes]\nextra = extra_passes_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "extra" in entry_points(group="optc.passes").names
    assert any(found.name == "extra-passes" for found in distributions())
    _forget()
    yield tmp_path
    _forget()


def _forget() -> None:
    registry.pass_groups.cache_clear()
    registry.passes.cache_clear()
    sys.modules.pop("extra_passes_module", None)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("", "AttributeError: .* has no attribute 'PASSES'"),
        ("PASSES = 3", "TypeError: 'int' object is not iterable"),
    ],
)
def test_a_package_that_cannot_be_loaded_is_named(site: Path, text: str, cause: str) -> None:
    (site / "extra_passes_module.py").write_text(text + "\n")
    with pytest.raises(UnavailableError) as caught:
        registry.passes()
    error = caught.value
    assert error.where == "entry point extra = extra_passes_module"
    assert error.message.startswith("the passes of the package 'extra-passes' cannot be loaded: ")
    assert "pip uninstall extra-passes" in error.hint
    with pytest.raises(UnavailableError, match=cause):
        registry.passes()


def test_its_passes_are_found_by_name(site: Path) -> None:
    (site / "extra_passes_module.py").write_text(
        "from optc.passes.canonicalize import Canonicalize\n"
        "class Extra(Canonicalize):\n    name = 'extra'\n"
        "PASSES = [Extra]\n"
    )
    assert registry.passes()["extra"].__name__ == "Extra"
    assert "canonicalize" in registry.passes()


def test_an_error_of_our_own_passes_is_an_internal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget()
    monkeypatch.setitem(sys.modules, "optc.passes.fuse", None)
    with pytest.raises(ModuleNotFoundError):
        registry.passes()
    _forget()


def test_what_leads_to_a_form_is_optc_s_own(site: Path) -> None:
    (site / "extra_passes_module.py").write_text(
        "from optc.passes.kv_cache import PASSES as OWN\n"
        "PASSES = [type('Mine', (one,), {'name': f'a-{one.name}'}) for one in OWN]\n"
    )
    _forget()
    assert "a-kv-cache" in registry.passes()
    assert registry.leading_to(RaggedStep).name == "kv-cache"
    assert registry.leading_to(StaticKV).name == "kv-slots"
    assert registry.leading_to(Dense).name == "canonicalize"
    assert registry.having(Effect.SETS_COMPUTE_TYPE).name == "compute-type"
    with pytest.raises(InputError, match="no pass leads to an exported decoder"):
        registry.leading_to(Exported)


def test_the_pass_of_an_option_is_the_only_one(site: Path) -> None:
    (site / "extra_passes_module.py").write_text(
        "from optc.passes.adapters.add_adapters import AddAdapters\n"
        "class Mine(AddAdapters):\n"
        "    name = 'my-adapters'\n"
        "PASSES = [Mine]\n"
    )
    _forget()
    with pytest.raises(InputError, match="there are: adapters, my-adapters"):
        registry.added_by("--adapters")
    with pytest.raises(InputError, match="there are: none") as caught:
        registry.added_by("--nothing")
    assert caught.value.hint == "install optc again"
