"""optc and its peers, measured on the same weights in one run (see ``__main__``)."""
