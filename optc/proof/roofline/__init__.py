"""What a step must read and compute, and what the machine can do at best.

Below the benchmarks, which divide one by the other, and the backends, which state both.
"""
