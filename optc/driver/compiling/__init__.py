"""The stages of a compile: options, checks, lowering, building, assembling the artifact."""
