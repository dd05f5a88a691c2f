"""What was asked for becomes settled: recipe, options, targets, limits; refusals come early."""
