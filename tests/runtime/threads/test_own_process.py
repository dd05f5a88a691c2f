from __future__ import annotations

import os

import pytest

from optc.errors import EngineError
from optc.runtime.threads.own_process import OwnProcess


def test_only_the_process_itself_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    process, pid = OwnProcess(), os.getpid()
    process.check()
    assert process.here
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert not process.here
    with pytest.raises(EngineError) as caught:
        process.check()
    assert str(caught.value) == (
        f"process {pid + 1}, forked from {pid}: a loaded engine does not survive a fork "
        "(call optc.load in each process, after the fork)"
    )
