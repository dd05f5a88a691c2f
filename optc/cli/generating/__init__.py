"""The parts of ``optc run`` and ``optc chat``: prompts, sampling options, results."""
