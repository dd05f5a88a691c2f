"""`EventReader`: server-sent events, from bytes that are cut anywhere.

https://html.spec.whatwg.org/multipage/server-sent-events.html, without ids and retries.
"""

from __future__ import annotations


class EventReader:
    """Gives the data of events."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The data of each event that these bytes end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = []
        for line in lines:
            text = line.removesuffix(b"\r")
            if text.startswith(b"data:"):
                self._data.append(text[5:].removeprefix(b" "))
            elif not text and self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        return found
