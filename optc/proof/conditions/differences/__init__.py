"""Differences between two artifacts: recipes, passes, weights, gates, sizes, versions, speed."""
