"""The engine's thread: its inbox, and the steps that advance all running requests."""
