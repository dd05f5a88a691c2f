"""Keys of a file and of the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.cli.commands.serving.keys import KEYS, read_keys
from optc.errors import InputError


def test_keys_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS, raising=False)
    assert read_keys(None) == ()
    file = tmp_path / "keys"
    file.write_text("# of the team\nsk-1\n\n  sk-2  \nsk-1\n")
    assert read_keys(file) == ("sk-1", "sk-2")
    monkeypatch.setenv(KEYS, " sk-3  sk-2\n")
    assert read_keys(None) == ("sk-3", "sk-2")
    assert read_keys(file) == ("sk-3", "sk-2", "sk-1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it holds no key"),
        ("# none\n", "it holds no key"),
        ("sk-secret é\n", "without blanks"),
        ("a b\n", "without blanks"),
        ("a\tb\n", "without blanks"),
    ],
)
def test_files_that_hold_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.delenv(KEYS, raising=False)
    (tmp_path / "keys").write_text(text, "utf-8")
    with pytest.raises(InputError, match=message) as found:
        read_keys(tmp_path / "keys")
    assert "sk-secret" not in found.value.render()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--api-key-file"):
        read_keys(tmp_path / "keys")
