"""Mutation testing: do the tests of a module notice when a line of it is changed?"""
