"""Mixers of tokens that are no attention, in the dense form: convolutions along the tokens and
recurrences; and parts of heads."""
