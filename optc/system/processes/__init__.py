"""Processes of our own: children, the jobs that they do, and their memory."""
