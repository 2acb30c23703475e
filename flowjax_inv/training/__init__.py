"""The one train step that every method shares, and the state that it moves on."""

from flowjax_inv.training.evidence import Laplace, make_evidence_step
from flowjax_inv.training.gaps import make_alpha_step
from flowjax_inv.training.losses import edge_share
from flowjax_inv.training.state import Controller, Stream, TrainState, init_state, take_totals
from flowjax_inv.training.step import check_objective, make_step

__all__ = [
    "Controller",
    "Laplace",
    "Stream",
    "TrainState",
    "check_objective",
    "edge_share",
    "init_state",
    "make_alpha_step",
    "make_evidence_step",
    "make_step",
    "take_totals",
]
