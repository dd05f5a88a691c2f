"""``optc serve``: an online API as OpenAI's clients speak it, on the runtime.

Needs the extra ``serve`` (starlette, uvicorn, pydantic, prometheus_client); nothing else of optc
imports this package (ADR 0156).
"""
