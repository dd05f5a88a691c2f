"""What each technique gives, added one by one (see ``__main__``)."""
