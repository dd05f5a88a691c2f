"""Tells routers which prefixes an engine has cached, in vLLM's form."""
