"""A loaded engine: its memory, its threads and its step."""
