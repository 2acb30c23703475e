"""The couplings of a flow."""

from flowjax_inv.couplings.loop import Couplings

__all__ = ["Couplings"]
