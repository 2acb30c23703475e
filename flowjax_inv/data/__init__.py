"""Data sets as arrays: how they are made, and in which order a run reads them."""
