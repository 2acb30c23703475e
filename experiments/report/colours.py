"""Colours of all figures: those of Okabe and Ito, which colour-blind readers can tell apart."""

__all__ = [
    "BLACK",
    "BLUE",
    "CYCLE",
    "GREEN",
    "GREY",
    "MARKERS",
    "ORANGE",
    "PURPLE",
    "RED",
    "SAND",
    "SKY",
]

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#6b6b6b"
SAND = "#fbe3c8"  # areas of truth, outlined in RED
CYCLE = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
MARKERS = "osD^vP*X"
