"""The sections of an artifact's page, each from the parts of its manifest and report."""
