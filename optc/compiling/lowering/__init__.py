"""The recipe's passes over a model, and the reference kept from before them."""
