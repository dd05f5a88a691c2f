"""`optc.compile`, `optc.plan` and `optc.plan_ladder`: the driver's functions, whose errors name
keywords instead of flags."""

from __future__ import annotations

from optc.driver.compiling.compile import compile as _compile
from optc.driver.ladder.plan import plan_ladder as _plan_ladder
from optc.driver.plan import plan as _plan
from optc.options.error_keywords import keywords

__all__ = ["compile", "plan", "plan_ladder"]

compile = keywords(_compile)
plan = keywords(_plan)
plan_ladder = keywords(_plan_ladder)
