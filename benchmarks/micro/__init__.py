"""Parts of a step alone: kernels, attention, sampling, masks."""
