"""Files and batches as they are kept, and as clients see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: States in which a batch has work left.
UNFINISHED = ("validating", "in_progress", "finalizing", "cancelling")


@dataclass(frozen=True)
class StoredFile:
    """A file.

    Attributes:
        id: Its own, and its name in the folder.
        salt: Of who sent it: nobody else finds it.
        name: That it was sent with.
        purpose: ``batch``, or ``batch_output``.
        bytes: Its length.
        created: When it came, in seconds since 1970.
    """

    id: str
    salt: str
    name: str
    purpose: str
    bytes: int
    created: int

    def to_json(self) -> dict[str, Any]:
        """As clients see it."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created,
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
            "expires_at": None,
        }


@dataclass(frozen=True)
class Batch:
    """A file of requests that is answered.

    Attributes:
        id: Its own.
        salt: Of who sent it: nobody else finds it.
        endpoint: The route that its lines are for.
        input: Id of the file of its lines.
        metadata: The client's own notes.
        created: When it came, in seconds since 1970.
        expires: When it ends at the latest.
        status: How far it is.
        times: When it became what, by status.
        output: Id of the file of answers, once it has ended; None if there are none.
        errors: Id of the file of lines that failed; None if there are none.
        total: Lines.
        completed: Lines with an answer.
        failed: Lines that failed.
        wrong: What is wrong with the file, of a batch that failed.
    """

    id: str
    salt: str
    endpoint: str
    input: str
    metadata: Mapping[str, str] | None
    created: int
    expires: int
    status: str = "validating"
    times: Mapping[str, int] | None = None
    output: str | None = None
    errors: str | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    wrong: tuple[Mapping[str, Any], ...] = ()

    @property
    def ends(self) -> bool:
        """It has ended, in whatever way."""
        return self.status not in UNFINISHED

    def to_json(self) -> dict[str, Any]:
        """As clients see it."""
        states = ("in_progress", "finalizing", "completed", "failed", "expired")
        times = self.times or {}
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "errors": {"object": "list", "data": list(self.wrong)} if self.wrong else None,
            "input_file_id": self.input,
            "completion_window": "24h",
            "status": self.status,
            "output_file_id": self.output,
            "error_file_id": self.errors,
            "created_at": self.created,
            "expires_at": self.expires,
            **{f"{state}_at": times.get(state) for state in (*states, "cancelling", "cancelled")},
            "request_counts": {
                "total": self.total,
                "completed": self.completed,
                "failed": self.failed,
            },
            "metadata": self.metadata,
        }
