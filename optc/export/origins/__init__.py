"""Where each weight of an engine comes from in its model's class: found by numbers that say it."""
