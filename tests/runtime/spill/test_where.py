"""Where a user wants blocks to be spilled to."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from optc.errors import InputError
from optc.runtime.engine import Engine
from optc.runtime.settings import ServeSettings
from optc.runtime.spill.stores import FileStore, HostStore, Store
from optc.runtime.spill.where import parse_spill
from tests.runtime.support.toy import ToyExecutable, toy_spec


def test_users_say_where(tmp_path: Path) -> None:
    assert isinstance(parse_spill("1MiB"), HostStore)
    for where in (tmp_path, str(tmp_path), f"{tmp_path}:1MiB"):
        store = parse_spill(where)
        assert isinstance(store, FileStore)
        store.close()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("/no/such/folder", "prefix_spill: '/no/such/folder' is neither a size nor a folder"),
        ("0", "prefix_spill: '0' is not a size"),
        ("1 parsec", "'1 parsec' is not a size"),
    ],
)
def test_what_is_no_place_is_refused(where: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Engine(lambda: ToyExecutable(toy_spec()), ServeSettings(prefix_spill=where))
    assert message in str(caught.value)


def blocks_held(store: Store) -> int:
    """Of 1 KiB, of four that it is given."""
    for number in range(4):
        store.put((0, bytes([number])), np.zeros(1024, np.uint8))
    held = len(store)
    store.close()
    return held


def test_the_size_is_what_is_said_or_a_quarter_of_the_free_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3 * 4096))
    assert blocks_held(parse_spill("2KiB")) == 2
    assert blocks_held(parse_spill(f"{tmp_path}:1KiB")) == 1
    assert blocks_held(parse_spill(tmp_path)) == 3


def test_a_disk_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3))
    with pytest.raises(InputError, match=r"the disk of .* is full"):
        parse_spill(tmp_path)
