"""Threads that wait sleep.

Those of PyTorch, TVM and ONNX Runtime spin for a while first, which is quick on a machine of their
own. Beside another worker and the commands that tests start, what they wait for has no core
meanwhile: a calibration took six times the core time. PyTorch and TVM are told by variables, which
`tests/conftest.py` sets before it imports anything; processes that tests start have them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnxruntime
import pytest


def sleep_in_sessions(patch: pytest.MonkeyPatch) -> None:
    """From now on sessions of ONNX Runtime in this process do not spin."""
    begin = onnxruntime.InferenceSession.__init__

    def init(
        session: Any,
        model: Any,
        options: Any = None,
        providers: Sequence[Any] | None = None,
        *rest: Any,
        **more: Any,
    ) -> None:
        options = more.pop("sess_options", options) or onnxruntime.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        begin(session, model, options, providers, *rest, **more)

    patch.setattr(onnxruntime.InferenceSession, "__init__", init)
