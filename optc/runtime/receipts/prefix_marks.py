"""`PrefixMarks`: two bytes a token, by which one sees where another text parts from the first."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from dataclasses import dataclass

_BYTES = 2
#: Of a token id.
_ID = 4


@dataclass(frozen=True)
class PrefixMarks:
    """A hash of tokens, and the beginnings of the hashes of all their prefixes.

    Attributes:
        sha256: In hex, of the ids as little-endian integers of 32 bits.
        marks: [2 * tokens] the first two bytes of the same hash of the first token, of the first
            two, and so on.
    """

    sha256: str
    marks: bytes

    @classmethod
    def of(cls, token_ids: Sequence[int]) -> PrefixMarks:
        """Those of a text."""
        digest, marks = hashlib.sha256(), bytearray()
        for token in token_ids:
            digest.update(token.to_bytes(_ID, "little"))
            marks += digest.digest()[:_BYTES]
        return cls(digest.hexdigest(), bytes(marks))

    @property
    def tokens(self) -> int:
        """The number of marks."""
        return len(self.marks) // _BYTES

    def parting(self, other: PrefixMarks) -> int | None:
        """The index of the first token in which two texts differ, where the shorter one ends if it
        is how the longer one begins; None for equal ones. One parting in 65,536 is seen a token
        late."""
        if self.sha256 == other.sha256:
            return None
        both = min(self.tokens, other.tokens)
        for index in range(both):
            piece = slice(_BYTES * index, _BYTES * (index + 1))
            if self.marks[piece] != other.marks[piece]:
                return index
        return both

    def to_json(self) -> dict[str, str]:
        """``sha256`` and ``marks``, these in Base64."""
        return {"sha256": self.sha256, "marks": b64encode(self.marks).decode()}

    @classmethod
    def from_json(cls, sha256: str, marks: str) -> PrefixMarks:
        """Those that `to_json` gave.

        Raises:
            ValueError: They are none.
        """
        try:
            found = b64decode(marks, validate=True)
        except Base64Error as error:
            raise ValueError("marks are no Base64") from error
        if len(found) % _BYTES or len(bytes.fromhex(sha256)) != hashlib.sha256().digest_size:
            raise ValueError("marks or sha256 have another length")
        return cls(sha256, found)
