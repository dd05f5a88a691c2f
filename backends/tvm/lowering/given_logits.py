"""Steps that leave their logits in memory of the caller's.

TVM would allocate a result for every step: as many bytes as there are rows of logits, 8 MB for 16
rows of 128,256 tokens, taken from the heap and freed again. Memory of the caller's is the same in
every step, whether the virtual machine runs it or it is replayed.
"""

from __future__ import annotations

from dataclasses import replace

from optc.backends.tvm.program import Call, Function, Program, Tensor

#: The step's last argument.
LOGITS = "logits_memory"


def with_given_logits(program: Program) -> Program:
    """The program whose ``step`` takes memory for its logits, f32 [R, V], as last argument, and
    returns it in place of a tensor of its own."""
    functions = (leaving_logits(f) if f.name == "step" else f for f in program.functions)
    return replace(program, functions=tuple(functions))


def leaving_logits(step: Function) -> Function:
    """``step`` with the further argument `LOGITS`, which the kernel that made its result writes."""
    calls = list(step.calls)
    (index,) = (i for i, c in enumerate(calls) if step.result in {t.name for t in c.outputs})
    (logits,) = calls[index].outputs
    if calls[index].kernel.startswith("relax."):
        width = int(logits.shape[-1])
        config = {"operation": "scale", "width": width, "constant": 1.0}
        calls.append(Call("elementwise", config, (logits.name,), (), (LOGITS,)))
    else:
        calls[index] = replace(calls[index], outputs=(), updated=(LOGITS,))
    memory = Tensor(LOGITS, "float32", logits.shape)
    return replace(step, arguments=(*step.arguments, memory), calls=tuple(calls), result=LOGITS)
