"""The stages of a compile of a model that generates text, in order, and what each leaves."""
