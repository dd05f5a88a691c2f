"""The stages of training a target and its draft; `train.py` is their command line."""
