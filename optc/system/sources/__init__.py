"""Sources that users name as models: recognized by names and first bytes, before loading."""
