"""The server under load: its address, its models, and the bodies that it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

from optc.errors import InputError, UnavailableError
from optc.proof.bench.online.prompts import WORDS, Asking, sample_text

Api = Literal["completions", "chat"]
_PATHS: Mapping[Api, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
#: Seconds for what is asked before the load begins.
_ASK_S = 30
_SHOWN = 200


@dataclass(frozen=True)
class ServerUnderLoad:
    """A server, and how it is asked.

    Attributes:
        url: Its address, without ``/v1``.
        model: Name of the model.
        api: The route.
        key: Of the server; None sends none.
        timeout_s: After which an answer is given up.
        fixed_length: Answers are as long as was asked for (``ignore_eos``, which servers beside
            OpenAI's know).
        more: Further fields of each body.
    """

    url: str
    model: str
    api: Api = "completions"
    key: str | None = None
    timeout_s: float = 600.0
    fixed_length: bool = True
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Address of the route."""
        return self.url + _PATHS[self.api]

    def body(self, asking: Asking) -> bytes:
        """The body of a request: greedy, streamed, with a count of its tokens."""
        prompt: dict[str, Any] = {"prompt": asking.prompt}
        if self.api == "chat":
            prompt = {"messages": [{"role": "user", "content": asking.prompt}]}
        fixed = {"ignore_eos": True} if self.fixed_length else {}
        fields = {
            "model": self.model,
            "max_tokens": asking.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps({**prompt, **fields, **fixed, **self.more}).encode()

    def session(self, *, kept: bool = True) -> aiohttp.ClientSession:
        """A client of as many connections as there are requests; ``kept`` ones serve the next."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=not kept),
            timeout=aiohttp.ClientTimeout(total=self.timeout_s),
            headers=headers(self.key) | {"content-type": "application/json"},
        )


@dataclass(frozen=True)
class ServedModel:
    """A model that a server lists.

    Attributes:
        name: What requests call it.
        max_context: Tokens; None is not stated.
        tokens_per_word: Of `WORDS`; None where the server does not count tokens.
    """

    name: str
    max_context: int | None
    tokens_per_word: float | None


def address(url: str) -> str:
    """A server's address as users give it, without ``/v1`` and slashes at its end.

    Raises:
        InputError: It is none of HTTP.
    """
    if not url.startswith(("http://", "https://")):
        hint = "for example http://127.0.0.1:8000"
        raise InputError(f"{url!r} is no address of a server", where="URL", hint=hint)
    return url.rstrip("/").removesuffix("/v1")


def headers(key: str | None) -> dict[str, str]:
    """The headers that a server with keys wants to see."""
    return {} if key is None else {"authorization": f"Bearer {key}"}


async def find_model(url: str, name: str | None, key: str | None) -> ServedModel:
    """The model of a name, or the first that the server lists.

    Raises:
        UnavailableError: The server cannot be reached, or is none of OpenAI's API.
        InputError: It wants another key, or has no such model.
    """
    timeout = aiohttp.ClientTimeout(total=_ASK_S)
    async with aiohttp.ClientSession(headers=headers(key), timeout=timeout) as session:
        try:
            listed = await _models(session, url)
            entry = _chosen(listed, name)
            counted = await _tokens_per_word(session, url, entry["id"])
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            hint = "is the server running?"
            raise UnavailableError(f"cannot be reached: {reason}", where=url, hint=hint) from error
    context = entry.get("max_model_len")
    return ServedModel(entry["id"], context if isinstance(context, int) else None, counted)


async def _models(session: aiohttp.ClientSession, url: str) -> list[dict[str, Any]]:
    async with session.get(f"{url}/v1/models") as answer:
        text = await answer.text()
        if answer.status in (401, 403):
            hint = "OPTC_API_KEY holds the key to send"
            raise InputError("the server does not take this key", where=url, hint=hint)
        if answer.status != 200:
            shown = text[:_SHOWN]
            raise UnavailableError(f"answers {answer.status} to /v1/models: {shown}", where=url)
    try:
        found = json.loads(text)["data"]
        return [one for one in found if isinstance(one["id"], str)]
    except (ValueError, LookupError, TypeError) as error:
        raise UnavailableError("/v1/models lists no models", where=url) from error


def _chosen(listed: list[dict[str, Any]], name: str | None) -> dict[str, Any]:
    found = [one for one in listed if name is None or one["id"] == name]
    if not found:
        names = ", ".join(one["id"] for one in listed) or "none"
        raise InputError(
            f"the server has no model {name!r}", where="--model", hint=f"it has {names}"
        )
    return found[0]


async def _tokens_per_word(session: aiohttp.ClientSession, url: str, model: str) -> float | None:
    """By ``/tokenize``, as optc's and vLLM's servers have it; None of another."""
    body = {"model": model, "prompt": sample_text(), "add_special_tokens": False}
    async with session.post(f"{url}/tokenize", json=body) as answer:
        if answer.status != 200:
            return None
        try:
            return int((await answer.json())["count"]) / len(WORDS)
        except (ValueError, LookupError, TypeError, aiohttp.ClientError):
            return None
