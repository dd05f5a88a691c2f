"""Parts of a step alone: kernels, sampling, masks, reading weights."""
