"""Ranks by both clients of Cohere: ``URL MODEL``."""

import sys

import cohere

url, model = sys.argv[1:]
for client in (cohere.Client("-", base_url=url), cohere.ClientV2("-", base_url=url)):
    found = client.rerank(model=model, query="abc", documents=["a", "hh", "b"], top_n=2)
    print([one.index for one in found.results])
