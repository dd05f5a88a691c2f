"""`optc.compile`, `optc.plan` and `optc.plan_ladder`: the driver's functions, whose errors name
keywords instead of flags."""

from __future__ import annotations

from optc.compiling.compile import compile as _compile
from optc.compiling.ladder.plan import plan_ladder as _plan_ladder
from optc.compiling.plan import plan as _plan
from optc.system.needs import compile_packages
from optc.system.options.error_keywords import keywords

__all__ = ["compile", "plan", "plan_ladder"]

compile = keywords(compile_packages()(_compile))
plan = keywords(compile_packages()(_plan))
plan_ladder = keywords(compile_packages()(_plan_ladder))
