"""What ``optc run`` and ``optc chat`` are made of: prompts, sampling options, results."""
