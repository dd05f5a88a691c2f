"""The bytes and operations of a step, and the highest rates of the machine.

Below the benchmarks, which divide one by the other, and the backends, which state both.
"""
