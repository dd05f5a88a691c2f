"""`Kept`: responses by id, for later requests: the latest ones, in memory."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optc.serve.api_errors import APIError

#: Responses that are kept, and characters of all of them.
MOST, MOST_CHARACTERS = 1000, 64 << 20


@dataclass(frozen=True)
class KeptResponse:
    """A response, and the conversation that it ends.

    Attributes:
        response: As the client got it.
        messages: The conversation, the response's turn included.
        salt: Of who asked: nobody else finds it.
    """

    response: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    salt: str


class Kept:
    """Responses by id; the oldest go first. The event loop's thread changes them; any may look."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[KeptResponse, int]] = OrderedDict()
        self._characters = 0

    def add(self, one: KeptResponse) -> None:
        """Keep one."""
        size = len(json.dumps([one.response, list(one.messages)]))
        self._kept[one.response["id"]] = one, size
        self._characters += size
        while len(self._kept) > MOST or (self._characters > MOST_CHARACTERS and self._kept):
            self._characters -= self._kept.popitem(last=False)[1][1]

    def find(self, name: str, salt: str) -> KeptResponse:
        """The one of an id.

        Raises:
            APIError: There is none that this asker may see.
        """
        found = self._kept.get(name)
        if found is None or found[0].salt != salt:
            message = f"there is no response {name[:128]!r}; the latest {MOST} are kept"
            raise APIError(404, message, "previous_response_id", "response_not_found")
        return found[0]

    def remove(self, name: str, salt: str) -> None:
        """Forget one.

        Raises:
            APIError: There is none that this asker may see.
        """
        self.find(name, salt)
        self._characters -= self._kept.pop(name)[1]
