"""The executor of the dense form: a model's nodes on PyTorch tensors, on a CPU or a GPU."""
