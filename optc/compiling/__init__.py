"""Then it is compiled: a recipe is resolved, its passes run, engines are built and judged."""
