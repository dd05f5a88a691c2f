"""First there is the model as data: lazy weights, operators with a meaning, forms, pipelines."""
