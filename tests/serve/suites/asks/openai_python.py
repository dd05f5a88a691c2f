"""Chats by OpenAI's client: ``URL MODEL``."""

import sys

from openai import OpenAI

url, model = sys.argv[1:]
asked = {"model": model, "max_tokens": 24, "messages": [{"role": "user", "content": "hi"}]}
client = OpenAI(base_url=f"{url}/v1", api_key="-")
for chunk in client.chat.completions.create(stream=True, **asked):
    print(chunk.choices[0].delta.content or "", end="")
