"""Conditional densities over the unit box: one class per method of the comparison.

A new method goes here: one Linen module that keeps the contract of `base.ConditionalDistribution`,
one line in `experiments/setup/build.py`, one line in the list of `tests/test_distributions.py`.
"""
