"""Trained densities and classifiers as files that plain JAX runs, see `files` and `programs`."""

from flowjax_inv.export.files import CARD, PLATFORMS, PROGRAM, WEIGHTS, Program, load, write
from flowjax_inv.export.programs import with_plain_convolutions, write_aligner, write_predictor

__all__ = [
    "CARD",
    "PLATFORMS",
    "PROGRAM",
    "WEIGHTS",
    "Program",
    "load",
    "with_plain_convolutions",
    "write",
    "write_aligner",
    "write_predictor",
]
