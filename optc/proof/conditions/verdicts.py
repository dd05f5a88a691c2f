"""Verdicts on conditions, and the error that ends a command where one does not hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from optc.errors import InputError, OptcError
from optc.proof.conditions.condition import Condition, check_metric, figure_text, parse_condition

#: Figures by name of the metric, then by case: an engine, a number of requests at once, or the
#: empty text where there is but one. None was not measured.
Figures = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a condition in one case.

    Attributes:
        condition: As it was written.
        metric: Name of the figure.
        case: What it was measured for; empty where there is but one.
        value: The figure; None was not measured.
        baseline: The baseline's, where there is one.
        bound: What ``value`` was held against; None where the baseline has no figure.
        passed: False also where it cannot be told: what was asked for was not shown.
        reason: Why it did not pass; empty where it did.
    """

    condition: str
    metric: str
    case: str
    value: float | None
    baseline: float | None
    bound: float | None
    passed: bool
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """An element of ``conditions`` in a command's JSON object."""
        return asdict(self)


class ConditionsError(OptcError):
    """Conditions that do not hold.

    Attributes:
        details: All values of the command, for its JSON object.
    """

    kind = "conditions"
    exit_code = 4

    def __init__(self, verdicts: Sequence[Verdict], details: Mapping[str, Any]) -> None:
        failed = [verdict for verdict in verdicts if not verdict.passed]
        super().__init__("; ".join(verdict.reason for verdict in failed), where="conditions")
        self.details = dict(details)


@dataclass(frozen=True)
class Conditions:
    """Conditions of one command line.

    Attributes:
        wanted: Each must hold.
        unwanted: None may hold.
        option: Names the options in messages.
    """

    wanted: tuple[Condition, ...] = ()
    unwanted: tuple[Condition, ...] = ()
    option: str = "--require"

    @classmethod
    def parse(
        cls, option: str, wanted: Iterable[str] = (), unwanted: Iterable[str] = ()
    ) -> Conditions:
        """The conditions that texts state.

        Raises:
            InputError: A text states none.
        """
        return cls(
            tuple(parse_condition(text, option) for text in wanted),
            tuple(parse_condition(text, option) for text in unwanted),
            option,
        )

    def __bool__(self) -> bool:
        return bool(self.wanted or self.unwanted)

    def check(
        self,
        metrics: Sequence[str],
        *,
        baseline: bool = True,
        cases: Sequence[str] | None = None,
        elsewhere: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Refuse, before anything is measured, what could not be judged then.

        Args:
            metrics: All that will be measured.
            baseline: Whether there will be a baseline.
            cases: That each of them will be measured for; None is not known yet.
            elsewhere: What measures other metrics, as a hint.

        Raises:
            InputError: A metric or a case is unknown, or a factor has nothing to refer to.
        """
        for condition in (*self.wanted, *self.unwanted):
            check_metric(condition, metrics, self.option, elsewhere)
            if condition.of_baseline and not baseline:
                raise InputError(
                    f"{condition.text!r} refers to a baseline",
                    where=self.option,
                    hint="--compare names one",
                )
            if cases is not None:
                self._check_case(condition, cases)

    def judge(self, figures: Figures, baseline: Figures | None = None) -> list[Verdict]:
        """A verdict on every condition in each of its cases.

        Raises:
            InputError: A metric or a case is unknown.
        """
        before: Figures = baseline or {}
        self.check(sorted({*figures, *before}), baseline=baseline is not None)
        pairs = [(c, True) for c in self.wanted] + [(c, False) for c in self.unwanted]
        return [
            _judge(condition, wanted, case, figures, before)
            for condition, wanted in pairs
            for case in self._cases(condition, figures, before)
        ]

    def _cases(self, condition: Condition, figures: Figures, baseline: Figures) -> list[str]:
        cases = list(figures.get(condition.metric) or baseline.get(condition.metric) or {"": None})
        self._check_case(condition, cases)
        return [condition.case] if condition.case else cases

    def _check_case(self, condition: Condition, cases: Sequence[str]) -> None:
        if condition.case and condition.case not in cases:
            raise InputError(
                f"{condition.metric!r} has no case {condition.case!r}",
                where=self.option,
                hint=f"one of {', '.join(cases)}" if any(cases) else "leave out the @",
            )


def side_by_side(a: Figures, b: Figures) -> list[dict[str, Any]]:
    """Every figure that one of the two has, as JSON: ``name`` of the metric, ``case``, ``a``, ``b``
    and ``ratio`` of b to a, in the order of ``b``."""
    keys = dict.fromkeys(
        (metric, case) for figures in (b, a) for metric, cases in figures.items() for case in cases
    )
    rows = []
    for metric, case in keys:
        before, after = a.get(metric, {}).get(case), b.get(metric, {}).get(case)
        ratio = after / before if after is not None and before else None
        rows.append({"name": metric, "case": case, "a": before, "b": after, "ratio": ratio})
    return rows


def check(verdicts: Sequence[Verdict], values: Mapping[str, Any]) -> None:
    """End a command whose conditions do not hold.

    Args:
        verdicts: Of all conditions.
        values: Of the command's JSON object.

    Raises:
        ConditionsError: One does not hold.
    """
    if not all(verdict.passed for verdict in verdicts):
        raise ConditionsError(verdicts, values)


def _judge(
    condition: Condition, wanted: bool, case: str, figures: Figures, baseline: Figures
) -> Verdict:
    value = figures.get(condition.metric, {}).get(case)
    before = baseline.get(condition.metric, {}).get(case)
    bound = _bound(condition, before)
    passed = value is not None and bound is not None and condition.holds(value, bound) is wanted
    reason = "" if passed else _reason(condition, wanted, case, value, bound)
    return Verdict(condition.text, condition.metric, case, value, before, bound, passed, reason)


def _bound(condition: Condition, before: float | None) -> float | None:
    if not condition.of_baseline:
        return condition.number
    return None if before is None else condition.number * before


def _reason(
    condition: Condition, wanted: bool, case: str, value: float | None, bound: float | None
) -> str:
    name = f"{condition.metric}@{case}" if case else condition.metric
    if value is None:
        return f"{name} was not measured, so {condition.text!r} cannot be told"
    if bound is None:
        return f"the baseline has no {name}, so {condition.text!r} cannot be told"
    limit = figure_text(condition.metric, bound)
    if condition.of_baseline:
        limit += f" ({condition.number:g} times the baseline's)"
    holds = "is not" if wanted else "is"
    return f"{name} {figure_text(condition.metric, value)} {holds} {condition.relation} {limit}"
