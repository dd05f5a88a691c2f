"""Keys to sign with, and a registry to push to."""
