"""``/v1/messages``: Anthropic's form of conversations.

https://docs.anthropic.com/en/api/messages
"""
