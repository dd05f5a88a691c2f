"""Work items are claimed one after the other by the threads that are free.

Items cost differently (a prompt's later rows see more tokens, sequences differ in length), so that
no fixed division is even. Which thread does an item changes nothing in its result.
"""

from __future__ import annotations

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.script import Expr

_NAME = "optc_claim"
#: To be imported by a kernel that calls `claim`.
CLAIM_IR = f"""
define i32 @{_NAME}(ptr %claims) #0 {{
  %before = atomicrmw add ptr %claims, i32 1 monotonic
  ret i32 %before
}}
attributes #0 = {{ alwaysinline nounwind }}
"""


def claim(claims: Expr) -> Expr:
    """The number of claims of ``claims``, int32 [1], before this one."""
    return tir.call_extern("int32", _NAME, tir.address_of(claims[0]))
