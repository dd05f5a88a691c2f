"""The words that kernels are written in: loops, registers, vectors, approximated functions."""
