"""Pipelines of tests, in few words."""

from __future__ import annotations

import re

import yaml

from optc.ir.pipeline import registry
from optc.ir.pipeline.entries import Registry, read_pipeline
from optc.ir.pipeline.pipeline import Pipeline


def pipeline_of(text: str, known: Registry = registry) -> Pipeline:
    """The pipeline that is printed as ``text``, its order checked: ``fold,kv-cache{dtype=int8}``.

    Values are texts, as of ``--set``, or lists of texts.
    """
    mapped = text.replace("{", ": {").replace("=[", ": [")
    entries = re.sub(r"=([^,{}\[\]]*)", r": '\1'", mapped)
    pipeline = read_pipeline(yaml.safe_load(f"[{entries}]"), known)
    pipeline.validate()
    return pipeline
