"""The gain of each technique, added one by one (see ``__main__``)."""
