"""CUDA engines on a GPU: steps beside the GPU's measured peaks and torch.compile."""
