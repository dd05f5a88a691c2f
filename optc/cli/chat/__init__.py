"""``optc chat``: a conversation with an artifact on a terminal."""
