"""Kernels and engines for aarch64: their code, and what it computes under an emulator."""
