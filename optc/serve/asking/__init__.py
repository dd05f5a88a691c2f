"""From the body of a request to what the runtime is asked for."""
