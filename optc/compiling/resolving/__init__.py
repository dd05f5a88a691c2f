"""The settling of a request: recipe, options, targets, limits; refusals come early."""
