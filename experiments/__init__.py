"""Experiments: config files, and the commands that run them."""
