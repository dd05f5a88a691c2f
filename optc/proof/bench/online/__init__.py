"""Load on a server of OpenAI's API, and what its clients see."""
