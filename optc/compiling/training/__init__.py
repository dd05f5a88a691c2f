"""Training on the dense form: distillation and quantization-aware training, in PyTorch.

The only part of optc that trains. Nothing here is imported by the runtime or by ``import optc``;
the commands ``optc distill`` and ``optc qat`` import it when they run.
"""
