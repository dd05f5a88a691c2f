"""Gates of built engines: what is measured, against which reference, with which verdict."""
