"""Chats by pydantic-ai: ``URL MODEL``."""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

url, model = sys.argv[1:]
provider = OpenAIProvider(base_url=f"{url}/v1", api_key="-")
agent = Agent(OpenAIChatModel(model, provider=provider), model_settings={"max_tokens": 24})


async def main() -> None:
    async with agent.run_stream("hi") as result:
        async for text in result.stream_text(delta=True):
            print(text, end="")


asyncio.run(main())
