"""Chats by langchain-openai: ``URL MODEL``."""

import sys

from langchain_openai import ChatOpenAI

url, model = sys.argv[1:]
chat = ChatOpenAI(base_url=f"{url}/v1", api_key="-", model=model, max_tokens=24)
for chunk in chat.stream("hi"):
    print(chunk.content, end="")
