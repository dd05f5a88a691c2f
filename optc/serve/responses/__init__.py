"""``/v1/responses``: OpenAI's other form of conversations, which keeps them by id.

https://platform.openai.com/docs/api-reference/responses, https://www.openresponses.org
"""
