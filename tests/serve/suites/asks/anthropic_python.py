"""Chats by Anthropic's client: ``URL MODEL``."""

import sys

from anthropic import Anthropic

url, model = sys.argv[1:]
asked = {"model": model, "max_tokens": 24, "messages": [{"role": "user", "content": "hi"}]}
with Anthropic(base_url=url, api_key="-").messages.stream(**asked) as stream:
    for text in stream.text_stream:
        print(text, end="")
