from __future__ import annotations

import logging

from optc.system.logs.logger import ROOT, logger


def test_modules_are_children_of_one_logger_that_is_silent_once() -> None:
    for _ in range(2):
        child = logger("optc.runtime.loader")
    assert child.parent is logging.getLogger(ROOT)
    silent = [h for h in logging.getLogger(ROOT).handlers if isinstance(h, logging.NullHandler)]
    assert len(silent) == 1
