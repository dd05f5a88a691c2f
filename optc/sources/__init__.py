"""What a user names as a model: recognized by names and first bytes, before anything is loaded."""
