"""Routes for who runs the server: models and adapters are listed, loaded and unloaded. They are off
unless there is a key for them."""
