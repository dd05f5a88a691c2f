"""Beam search: the search itself (`search`), and its beams as requests (`group`)."""
