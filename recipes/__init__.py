"""The shipped recipes: one YAML file each (format: `optc.compiling.recipes.recipe`)."""
