"""The official clients, which ask a server in this process."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.serve.conftest import Api


def openai_client(api: Api, **options: Any) -> Any:
    """OpenAI's client."""
    openai = pytest.importorskip("openai", reason="the client of OpenAI is not installed")
    given = {"api_key": "-", "max_retries": 0, **options}
    return openai.OpenAI(base_url="http://testserver/v1", http_client=_http(api), **given)


def anthropic_client(api: Api, **options: Any) -> Any:
    """Anthropic's client."""
    reason = "the client of Anthropic is not installed"
    anthropic = pytest.importorskip("anthropic", reason=reason)
    given = {"api_key": "-", "max_retries": 0, **options}
    return anthropic.Anthropic(base_url="http://testserver", http_client=_http(api), **given)


def _http(api: Api) -> httpx2.Client:
    """A client of httpx2, whose transport is the application, as both take it."""
    return httpx2.Client(transport=api.http._transport, base_url="http://testserver")
