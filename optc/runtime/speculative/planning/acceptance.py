"""`Acceptance`: how often drafts hold, by request and by how sure their source was of them."""

from __future__ import annotations

from collections.abc import Sequence

from optc.runtime.speculative.planning.controller import PLACES, Draftable
from optc.runtime.speculative.planning.rate import Rate

#: Weight of what is guessed of all requests, and of these for a request of its own; larger where
#: drafts stop where they are unsure, which tells more of a request than few verifications do.
_PRIOR_WEIGHT, _PRIOR_WEIGHT_OF_SURE = 4.0, 16.0
#: Older drafts lose this fraction of their weight with each new one: all requests together are
#: known better than one, which also changes.
_FORGET_OF_ALL, _FORGET_OWN = 0.005, 0.03


class Acceptance:
    """Live acceptance rates by grade. A request begins with those of the requests before it."""

    _weight = _PRIOR_WEIGHT

    def __init__(self) -> None:
        self.verifications = 0
        self._of_all: dict[int, Rate] = {}  # by grade
        self._own: dict[int, dict[int, Rate]] = {}  # by request and grade
        self._grades: dict[int, Sequence[int]] = {}  # of the latest drafts of each request

    def rates(self, requests: Sequence[Draftable], limit: int) -> list[list[float]]:
        """Of each of at most ``limit`` drafts that are made for the requests now, if those before
        it hold."""
        return [
            [0.5 if rate is None else rate for rate in known]
            for known in self._known(requests, limit)
        ]

    def _known(self, requests: Sequence[Draftable], limit: int) -> list[list[float | None]]:
        """The known rates of each draft; None where none of its grade was seen."""
        found = []
        for request in requests:
            self._grades[request.id] = grades = request.grades
            own = self._own.get(request.id, {})
            found.append([self._rate(own, grade) for grade in grades[:limit]])
        return found

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        """Take note of a verification, for this request and for those to come; drafts behind a
        rejected one were not tested."""
        self._observe(request_id, min(accepted + 1, drafted), accepted)

    def _observe(self, request_id: int, known: int, accepted: int) -> None:
        """Take note of the first ``known`` drafts of a verification."""
        self.verifications += 1
        own = self._own.setdefault(request_id, {})
        for place, grade in enumerate(self._grades.get(request_id, PLACES)[:known]):
            of_all = self._of_all.get(grade)
            if of_all is None:
                of_all = self._of_all[grade] = Rate(0.5, self._weight, _FORGET_OF_ALL)
            if grade not in own:
                own[grade] = Rate(of_all.value, self._weight, _FORGET_OWN)
            for rate in (own[grade], of_all):
                rate.observe(place < accepted)

    def forget(self, request_id: int) -> None:
        """Drop what is known of a request that ended."""
        self._own.pop(request_id, None)
        self._grades.pop(request_id, None)

    def _rate(self, own: dict[int, Rate], grade: int) -> float | None:
        rate = own.get(grade) or self._of_all.get(grade)
        return None if rate is None else rate.value


class JointAcceptance(Acceptance):
    """Acceptance of drafts whose source stops where it is unsure of them all together: known are
    those that were made, so that a draft behind three others says that these are likely to hold.

    Learned is how often all drafts up to a place hold, if so many were made; the rates are these
    chances, each as a share of the one before. Their product is what a further draft is worth
    against what it costs, since both count only where it is made.
    """

    _weight = _PRIOR_WEIGHT_OF_SURE

    def rates(self, requests: Sequence[Draftable], limit: int) -> list[list[float]]:
        """Of each of at most ``limit`` drafts: what it is worth as a share of the one before."""
        return [_shares(joint) for joint in self._known(requests, limit)]

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        """Take note of a verification: behind a rejected draft no other holds."""
        self._observe(request_id, drafted, accepted)


def _shares(joint: Sequence[float | None]) -> list[float]:
    """Chances of all drafts up to each, as shares of the one before, 1 at most. Of places that were
    never reached each further draft holds as often as the first."""
    shares: list[float] = []
    before = 1.0
    for chance in joint:
        if chance is None:
            chance = before * (shares[0] if shares else 0.5)
        shares.append(min(1.0, chance / before))
        before = min(before, chance)
    return shares
