"""Gates of models of speech."""
