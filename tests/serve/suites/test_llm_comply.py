"""The suites of llm-comply hold answers against the specifications of OpenAI's chats, of Open
Responses and of Anthropic's messages."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.serve.suites.expected import differing, read_expected
from tests.serve.suites.server import DECODERS, THINKER

pytest.importorskip("llm_comply", reason="llm-comply is not installed")

_ANTHROPIC = ("--auth-header", "x-api-key", "--no-bearer")
#: What each suite is asked with.
SUITES = {"openai-chat": (), "open-responses": (), "anthropic": _ANTHROPIC}
#: So many of the cases passed, of both models, when the list was made.
LEAST = 49


def cases(url: str, form: str, model: str) -> dict[str, str]:
    """What is wrong by the names of the cases that were not skipped; with some it is nothing."""
    command = [
        *(sys.executable, "-m", "llm_comply.cli", "--json", "--format", form, *SUITES[form]),
        *("-u", f"{url}/v1", "-k", "-", "-m", model),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {
        f"{form}::{case['id']}": "; ".join([*case.get("errors", ()), *case.get("warnings", ())])
        for case in json.loads(done.stdout)["results"]
        if case["status"] != "skipped"
    }


def test_every_case_passes_but_for_what_the_list_says(url: str) -> None:
    found: dict[str, str] = {}
    for kind, model in (("plain", DECODERS[0]), ("thinking", THINKER)):
        for form in SUITES:
            found |= {f"{kind}::{name}": one for name, one in cases(url, form, model).items()}
    wrong = {name: message for name, message in found.items() if message}
    assert not differing(wrong, read_expected("llm_comply.toml"))
    assert len(found) - len(wrong) >= LEAST
