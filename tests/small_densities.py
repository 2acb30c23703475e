"""Small densities for tests: a flow, a Gaussian, one on the circle."""

from typing import Any

import flax.linen as nn
from laws_distributions import Pixels

from flowjax_inv.distributions.base import (
    ConditionalDistribution,
)
from flowjax_inv.distributions.circular import Circular
from flowjax_inv.distributions.flow import Flow
from flowjax_inv.distributions.gaussian import ConditionalGaussian


def flow(dim: int, **fields: Any) -> ConditionalDistribution:
    few: dict[str, Any] = {"layers": 3, "width": 8, "start_scale": 0.5, "components": 3}
    return Flow(dim=dim, embed=Pixels(), **few | fields)


def gaussian(dim: int, **fields: Any) -> ConditionalDistribution:
    return ConditionalGaussian(dim=dim, embed=Pixels(), start_scale=0.5, **fields)


def circular(bins: int = 6) -> ConditionalDistribution:
    return Circular(dim=1, embed=nn.Sequential([Pixels(), nn.Dense(bins)]))
