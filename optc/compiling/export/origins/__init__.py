"""The origin of each weight of an engine in its model's class: found by numbers that say it."""
