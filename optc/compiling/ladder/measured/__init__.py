"""Ladders of models that generate no text: every recipe is built and measured."""
