"""Engines that are larger than the memory for them: hot weights stay, others are read ahead."""
