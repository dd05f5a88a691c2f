"""`HTTPSettings`: how a server listens, whom it lets in, and what a request may ask for at most."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

#: Addresses that only this machine reaches.
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The most that a request may ask for; more is refused with what is allowed.

    Attributes:
        body_bytes: Of its body.
        file_bytes: Of a file that is sent.
        prompts: Prompts of one request of ``/v1/completions``.
        completions: Texts of one request, of all its prompts together.
        new_tokens: Tokens of one text; None is as many as the context holds.
        preparing: Requests that are parsed, encoded and compiled at once; more are turned away.
    """

    body_bytes: int = 4 << 20
    file_bytes: int = 200 << 20
    prompts: int = 128
    completions: int = 128
    new_tokens: int | None = None
    preparing: int = 256


@dataclass(frozen=True, kw_only=True)
class HTTPSettings:
    """The address of a server, its guards and its limits.

    Attributes:
        host: Address to listen at.
        port: Port to listen at; 0 is a free one.
        keys: Keys of which each request needs one; none let everybody in.
        admin_keys: Keys of which each request of an admin route needs one; none turn these off.
        admin_folder: Artifacts and adapters that admin routes load lie in it; None loads none.
        origins: Origins of web pages that may ask (CORS); none may.
        hosts: Names in ``Host`` that are answered; none are all.
        ping_s: Seconds after which a silent stream sends a comment; 0 never does.
        pause_s: Seconds between two chunks of a stream, at least; None lets their cost decide.
        drain_s: Seconds that running requests have to end once the server is to stop.
        access_log: Write a line of JSON for each request.
        ttft_s: Objective of each answer: its time to first token, at most; None has none.
        itl_s: The same of every gap between two tokens.
        metrics_prefix: Of the names of metrics.
        state: Folder of files and batches; None keeps none.
        traced: Make spans of OpenTelemetry.
        receipts: File to which a receipt of each answer is added; None writes none.
        receipts_text: Receipts hold the texts of answers, too.
        semantic: Encoder and least cosine of a semantic cache; None is off.
        limits: Of single requests.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    keys: tuple[str, ...] = ()
    admin_keys: tuple[str, ...] = ()
    admin_folder: Path | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    ping_s: float = 5.0
    pause_s: float | None = None
    drain_s: float = 60.0
    access_log: bool = True
    ttft_s: float | None = None
    itl_s: float | None = None
    metrics_prefix: str = "optc"
    state: Path | None = None
    traced: bool = False
    receipts: Path | None = None
    receipts_text: bool = False
    semantic: tuple[str, float] | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def named(self) -> HTTPSettings:
        """The same with names of this machine alone, where nothing else keeps pages of other sites
        out: the server is reached from this machine only, and asks for no key."""
        if self.hosts or self.keys or not self.is_loopback:
            return self
        return replace(self, hosts=LOOPBACK)

    @property
    def is_loopback(self) -> bool:
        """Only this machine reaches it."""
        return self.host in LOOPBACK
