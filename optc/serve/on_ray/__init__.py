"""Replicas as deployments of Ray Serve; the package ``ray`` is imported here alone."""
