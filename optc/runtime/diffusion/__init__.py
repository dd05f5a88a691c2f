"""Runs models of diffusion: noise becomes images."""
