"""`Acceptance`: how often drafts hold, by request and by how sure their source was of them."""

from __future__ import annotations

from collections.abc import Sequence

from optc.runtime.speculative.controller import Drafted
from optc.runtime.speculative.rate import Rate


class Acceptance:
    """Live acceptance rates. A request begins with those of the requests before it."""

    def __init__(self) -> None:
        self.verifications = 0
        self._of_all: dict[int, Rate] = {}  # by grade
        self._own: dict[int, dict[int, Rate]] = {}  # by request and grade
        self._grades: dict[int, int] = {}  # of the latest drafts of each request

    def rates(self, requests: Sequence[Drafted]) -> list[float]:
        """Of drafts that are made for the requests now."""
        rates = []
        for request in requests:
            self._grades[request.id] = request.grade
            own = self._own.get(request.id)
            rate = own.get(request.grade) if own else None
            rates.append((rate or self._rate_of_all(request.grade)).value)
        return rates

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        """Take note of a verification, for this request and for those to come."""
        self.verifications += 1
        grade = self._grades.get(request_id, 0)
        of_all = self._rate_of_all(grade)
        own = self._own.setdefault(request_id, {})
        if grade not in own:
            own[grade] = Rate(of_all.value)
        for rate in (own[grade], of_all):
            rate.observe(drafted, accepted)

    def forget(self, request_id: int) -> None:
        """Drop what is known of a request that ended."""
        self._own.pop(request_id, None)
        self._grades.pop(request_id, None)

    def _rate_of_all(self, grade: int) -> Rate:
        return self._of_all.setdefault(grade, Rate())
