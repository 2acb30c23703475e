"""Controllers of alpha, the weight of the entropy bonus: pure functions of a small state.

A controller has `init() -> state`, `alpha(state)`, and `update(state, value) -> state`, all of them
traceable; the state is a pytree of scalars that lives in the train state and its checkpoints. The
value is what the controller `watches`: the "entropy" of every train batch, or, now and then, the
"gap" that `gaps.make_alpha_step` measures.
"""

import dataclasses
import math
from typing import ClassVar

import flax.struct
import jax
import jax.numpy as jnp

__all__ = [
    "Constant",
    "EntropyBand",
    "EntropyBandState",
    "Gap",
    "GapState",
    "PatientBand",
    "PatientBandState",
    "Ramp",
]


@dataclasses.dataclass(frozen=True)
class Constant:
    """Alpha that never changes.

    Attributes:
        value: alpha >= 0.

    Raises:
        ValueError: if it is below 0.
    """

    watches: ClassVar[str] = "entropy"

    value: float

    def __post_init__(self) -> None:
        """Refuse a bonus for narrowness."""
        if not self.value >= 0:
            raise ValueError(f"value is {self.value}; want 0 or more.")

    def init(self) -> tuple[()]:
        """Return the empty state."""
        return ()

    def alpha(self, state: tuple[()]) -> jax.Array:
        """Return the constant."""
        del state
        return jnp.asarray(self.value, jnp.float32)

    def update(self, state: tuple[()], entropy: jax.Array) -> tuple[()]:
        """Return the state unchanged."""
        del entropy
        return state


@dataclasses.dataclass(frozen=True)
class Ramp:
    """Alpha that rises (or falls) in a straight line from `start` to `end` over `steps` updates.

    Ours. Early, a strong bonus outruns a classifier that knows nothing yet, and every view of every
    class becomes possible; late, the classifier's edge is sharp and a strong bonus fills the class
    up to it.

    Attributes:
        start, end: alpha > 0 before the first update and from the last one on.
        steps: number of updates between them, >= 1.

    Raises:
        ValueError: for numbers out of range.
    """

    watches: ClassVar[str] = "entropy"

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        """Refuse what is no way from one alpha to another."""
        if not (self.start > 0 and self.end > 0 and self.steps >= 1):
            raise ValueError(
                f"start={self.start}, end={self.end}, steps={self.steps}; want alphas above 0 and "
                "at least 1 step."
            )

    def init(self) -> jax.Array:
        """Return the number of updates: 0."""
        return jnp.zeros((), jnp.int32)

    def alpha(self, state: jax.Array) -> jax.Array:
        """Return alpha after `state` updates."""
        share = jnp.minimum(state / self.steps, 1.0)
        return self.start + (self.end - self.start) * share

    def update(self, state: jax.Array, entropy: jax.Array) -> jax.Array:
        """Count one update."""
        del entropy
        return state + 1


class EntropyBandState(flax.struct.PyTreeNode):
    """State of `EntropyBand`: scalars, float32."""

    entropy: jax.Array  # moving average of the train entropy, nats
    integral: jax.Array
    previous_error: jax.Array
    output: jax.Array  # alpha in force
    updates: jax.Array  # how often updated: the first entropy starts the average


@dataclasses.dataclass(frozen=True)
class EntropyBand:
    """Hold the train entropy in a band by a PID controller on its moving average.

    error = midpoint - entropy ("point"), or the signed distance to [low, high] ("interval"), or the
    distance to the midpoint made quadratic within the band ("huber");
    raw = k_p error + k_i integral + k_d (error - previous);
    alpha = clip(decay alpha + (1 - decay) clip(raw)).

    Attributes:
        low, high: band of the entropy in the unit box, nats.
        minimum, maximum: limits of alpha.
        error: "point", "interval" or "huber".
        k_p, k_i, k_d: gains.
        integral_start: first value of the integral.
        decay: of both moving averages.

    Raises:
        ValueError: if low > high, minimum > maximum, or the error is not one of the three.
    Source: flow paper's code (train_mario.py): integral 10, gains 0.01, decay 0.9. Entropy is that
        of the train batch, in the unit box. The integral is held where alpha sits at a limit, as
        it would otherwise take an epoch to come back.
    """

    watches: ClassVar[str] = "entropy"

    low: float
    high: float
    minimum: float = 0.001
    maximum: float = 0.5
    error: str = "point"
    k_p: float = 0.01
    k_i: float = 0.01
    k_d: float = 0.01
    integral_start: float = 10.0
    decay: float = 0.9

    def __post_init__(self) -> None:
        """Refuse a band upside down."""
        if not self.low <= self.high:
            raise ValueError(f"band is [{self.low}, {self.high}]; low must not exceed high.")
        if not 0 < self.minimum <= self.maximum:
            raise ValueError(
                f"alpha limits are [{self.minimum}, {self.maximum}]; want 0 < minimum <= maximum."
            )
        if self.error not in ("point", "interval", "huber"):
            raise ValueError(f'error is "{self.error}"; allowed: point, interval, huber.')

    def init(self) -> EntropyBandState:
        """Return the first state; alpha starts at what the integral alone asks for."""
        zero = jnp.zeros((), jnp.float32)
        start = jnp.clip(self.k_i * self.integral_start, self.minimum, self.maximum)
        return EntropyBandState(
            entropy=zero,
            integral=jnp.asarray(self.integral_start, jnp.float32),
            previous_error=zero,
            output=jnp.asarray(start, jnp.float32),
            updates=jnp.zeros((), jnp.int32),
        )

    def alpha(self, state: EntropyBandState) -> jax.Array:
        """Return alpha in force."""
        return state.output

    def update(self, state: EntropyBandState, entropy: jax.Array) -> EntropyBandState:
        """Return the state after seeing the entropy of one train batch."""
        first = state.updates == 0
        average = jnp.where(first, entropy, self.decay * state.entropy + (1 - self.decay) * entropy)
        error = self._error(average)
        change = jnp.where(first, 0.0, error - state.previous_error)
        integral = state.integral + error
        raw = self.k_p * error + self.k_i * integral + self.k_d * change
        held = (raw < self.minimum) & (error < 0) | (raw > self.maximum) & (error > 0)
        output = self.decay * state.output + (1 - self.decay) * jnp.clip(
            raw, self.minimum, self.maximum
        )
        return EntropyBandState(
            entropy=average,
            integral=jnp.where(held, state.integral, integral),
            previous_error=error,
            output=jnp.clip(output, self.minimum, self.maximum),
            updates=state.updates + 1,
        )

    def _error(self, entropy: jax.Array) -> jax.Array:
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        distance = middle - entropy
        if self.error == "point":
            return distance
        if self.error == "interval":
            return jnp.sign(distance) * jnp.maximum(jnp.abs(distance) - half, 0.0)
        inner = 0.5 * distance * jnp.abs(distance) / max(half, 1e-6)
        outer = jnp.sign(distance) * (jnp.abs(distance) - 0.5 * half)
        return jnp.where(jnp.abs(distance) <= half, inner, outer)


class PatientBandState(flax.struct.PyTreeNode):
    """State of `PatientBand`: scalars."""

    total: jax.Array  # sum of the entropies since the last decision, nats
    count: jax.Array  # their number
    last: jax.Array  # mean entropy at the last decision
    side: jax.Array  # -1 below the band, 0 inside, 1 above, at the last decision
    level: jax.Array  # alpha = value * factor ** level


@dataclasses.dataclass(frozen=True)
class PatientBand:
    """Hold the train entropy in a band by a factor on alpha, once in `every` updates.

    Below [low, high]: alpha *= factor; above: alpha /= factor; inside: nothing. Nothing is done
    either by the first decision on a side, or while the entropy comes back by more than `tolerance`
    from one decision to the next.

    Attributes:
        value: first alpha > 0.
        low, high: band of the mean entropy in the unit box, nats.
        every: updates between decisions; the steps of an epoch.
        factor: > 1.
        tolerance: nats.
        most_factors: how many factors alpha may move either way.

    Raises:
        ValueError: if low > high, value is not above 0, or factor not above 1.
    Source: InstaAug's code (scheduler.py), which looks at the entropy of the *test* set.
    """

    watches: ClassVar[str] = "entropy"

    value: float
    low: float
    high: float
    every: int = 1
    factor: float = 1.2
    tolerance: float = 0.005
    most_factors: int = 50

    def __post_init__(self) -> None:
        """Refuse a band upside down, and what would turn it round or hold alpha at 0."""
        if not self.low <= self.high:
            raise ValueError(f"band is [{self.low}, {self.high}]; low must not exceed high.")
        if not self.value > 0:
            raise ValueError(f"value is {self.value}; want above 0: alpha moves by factors alone.")
        if not self.factor > 1:
            raise ValueError(f"factor is {self.factor}; want above 1.")

    def init(self) -> PatientBandState:
        """Return the first state, inside the band."""
        zero, whole = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
        return PatientBandState(total=zero, count=whole, last=zero, side=whole, level=whole)

    def alpha(self, state: PatientBandState) -> jax.Array:
        """Return alpha in force."""
        return self.value * jnp.float32(self.factor) ** state.level

    def update(self, state: PatientBandState, entropy: jax.Array) -> PatientBandState:
        """Return the state after seeing the entropy of one train batch."""
        total, count = state.total + entropy, state.count + 1
        mean = total / count
        side = jnp.where(mean < self.low, -1, jnp.where(mean > self.high, 1, 0))
        returning = (mean - state.last) * -side > self.tolerance
        act = (side != 0) & (side == state.side) & ~returning
        level = jnp.clip(state.level - act * side, -self.most_factors, self.most_factors)
        decided = PatientBandState(
            total=jnp.zeros_like(total),
            count=jnp.zeros_like(count),
            last=mean,
            side=side.astype(state.side.dtype),
            level=level.astype(state.level.dtype),
        )
        waiting = state.replace(total=total, count=count)
        return jax.tree.map(lambda a, b: jnp.where(count >= self.every, a, b), decided, waiting)


class GapState(flax.struct.PyTreeNode):
    """State of `Gap`: scalars."""

    log_alpha: jax.Array
    gap: jax.Array  # moving average of what was measured, nats
    updates: jax.Array  # the first measurement starts the average


@dataclasses.dataclass(frozen=True)
class Gap:
    """Let views be classified worse than their images by so many nats, and no more.

    The density is as wide as this allows:

        maximise E[entropy of g]  subject to  E[CE(A_T I) - CE(I)] <= gap,  T ~ g(.; I)

    1 / alpha is the multiplier of the constraint. It is moved on a logarithm, once per measurement:

        log alpha += rate * clip((gap - measured) / gap, -1, 1)

    with a moving average for `measured`. The images measured are none that the classifier learns:
    of those it knows by heart the originals become cheap, and the gap would grow by itself.

    Attributes:
        gap: > 0, nats.
        value: first alpha > 0.
        rate: of log alpha per measurement, > 0.
        decay: of the moving average, in [0, 1).
        limits: of alpha. Where every transform is free, the gap is never reached.

    Raises:
        ValueError: for numbers out of range.
    Source: ours; constraints by a multiplier as in Rezende and Viola, Taming VAEs, 2018.
    """

    watches: ClassVar[str] = "gap"
    limits: ClassVar[tuple[float, float]] = (1e-4, 3.0)

    gap: float
    value: float = 0.1
    rate: float = 0.05
    decay: float = 0.9

    def __post_init__(self) -> None:
        """Refuse what is no allowance, and an alpha that could not move."""
        if not self.gap > 0:
            raise ValueError(f"gap is {self.gap}; want nats above 0: at 0 no view is allowed.")
        low, high = self.limits
        if not low <= self.value <= high:
            raise ValueError(f"value is {self.value}; want alpha in [{low}, {high}].")
        if not (self.rate > 0 and 0 <= self.decay < 1):
            raise ValueError(
                f"rate={self.rate}, decay={self.decay}; want a rate above 0, a decay in [0, 1)."
            )

    def init(self) -> GapState:
        """Return the first state, before any measurement."""
        return GapState(
            log_alpha=jnp.asarray(math.log(self.value), jnp.float32),
            gap=jnp.zeros((), jnp.float32),
            updates=jnp.zeros((), jnp.int32),
        )

    def alpha(self, state: GapState) -> jax.Array:
        """Return alpha in force."""
        return jnp.exp(state.log_alpha)

    def update(self, state: GapState, gap: jax.Array) -> GapState:
        """Return the state after one measurement, nats."""
        first = state.updates == 0
        average = jnp.where(first, gap, self.decay * state.gap + (1 - self.decay) * gap)
        change = self.rate * jnp.clip((self.gap - average) / self.gap, -1.0, 1.0)
        low, high = (math.log(limit) for limit in self.limits)
        return GapState(
            log_alpha=jnp.clip(state.log_alpha + change, low, high),
            gap=average,
            updates=state.updates + 1,
        )
