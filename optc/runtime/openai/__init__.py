"""Fields of OpenAI's API, as files of requests and the server read them."""
