"""Affine 3x3 matrices in closed form: exponential, logarithm, inverse.

A matrix here has the last row (0, 0, 1), an element of the Lie algebra (0, 0, 0). All functions
broadcast over leading axes and have finite derivatives wherever their values are finite.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

__all__ = ["as_matrices", "assemble", "exp", "inverse", "log"]

# Gauss-Legendre nodes and weights on [0, 1] for V(A) = int_0^1 exp(s A) ds: below float32 rounding
# up to |A| = 20 or so, three times what the box holds; no case distinction where A is singular.
_NODES, _WEIGHTS = (0.5 * (p + q) for p, q in zip(np.polynomial.legendre.leggauss(16), (1, 0),
                                                  strict=True))  # fmt: skip


def exp(algebra: ArrayLike) -> jax.Array:
    """Exponentiate 3x3 matrices whose last row is zero, in closed form.

    A = s 1 + B with tr B = 0, so B^2 = q 1:  exp(A) = e^s (cosh(sqrt q) 1 + sinh(sqrt q)/sqrt q B);
    the offset is V(A) t with V(A) = int_0^1 exp(u A) du by Gauss-Legendre quadrature.

    Args:
        algebra: (..., 3, 3): [[A, t], [0, 0, 0]]; the last row is not read.

    Returns:
        (..., 3, 3), last row (0, 0, 1). Exact at 0; derivatives are finite everywhere, and right
        at q = 0. Errors are roundings of the largest entry; the offset loses digits above
        |A| = 20.

    Raises:
        ValueError: if algebra does not end in (3, 3).
    Source: textbook closed form; checked against jax.scipy.linalg.expm.
    """
    return _exp(as_matrices(algebra))


@jax.jit
def _exp(algebra: jax.Array) -> jax.Array:
    s, q, b = _split(algebra)
    even, odd, alpha, beta = _blend(s, q)
    x, y = algebra[..., 0, 2], algebra[..., 1, 2]
    offset = alpha * x + beta * (b[0] * x + b[1] * y), alpha * y + beta * (b[2] * x + b[3] * y)
    linear = even + odd * b[0], odd * b[1], odd * b[2], even + odd * b[3]
    return assemble(linear, offset)


def log(matrices: ArrayLike) -> jax.Array:
    """Return the principal logarithm of affine matrices, in closed form: undoes `exp`.

    Args:
        matrices: (..., 3, 3), last row (0, 0, 1) (not read).

    Returns:
        (..., 3, 3), last row 0; rotations come out within half a turn. NaN where there is no
        principal logarithm: determinant not positive, or negative real eigenvalues (half a turn
        exactly; near it digits are lost).

    Raises:
        ValueError: if matrices do not end in (3, 3).
    Source: textbook closed form, the inverse of `exp`.
    """
    return _log(as_matrices(matrices))


@jax.jit
def _log(matrices: jax.Array) -> jax.Array:
    middle, p, b = _split(matrices)
    # Not middle^2 - p: of a stretch along one axis both are large, and nothing would be left.
    determinant = matrices[..., 0, 0] * matrices[..., 1, 1]
    determinant -= matrices[..., 0, 1] * matrices[..., 1, 0]
    positive = determinant > 0
    root = jnp.sqrt(jnp.where(positive, determinant, 1.0))
    # The linear part over its root determinant is c 1 + B': c = cosh r or cos w, B'^2 = p 1 with
    # p = sinh^2 r or -sin^2 w.
    c, p = middle / root, p / (root * root)
    exists = positive & ((c > 0) | (p < 0))
    # factor = r / sinh r or w / sin w.
    near = (jnp.abs(p) < 0.05) & (c > 0)
    small = jnp.where(near, p, 0.0)
    series = _polynomial(small, -63 / 2816, 35 / 1152, -5 / 112, 3 / 40, -1 / 6, 1.0)
    real = ~near & (p > 0)
    sinh = jnp.sqrt(jnp.where(real, p, 1.0))
    turn = ~near & (p < 0)
    sin = jnp.sqrt(jnp.where(turn, -p, 1.0))
    factor = jnp.where(real, jnp.arcsinh(sinh) / sinh, jnp.arctan2(sin, c) / sin)
    factor = jnp.where(near, series, factor) / root
    s, b = jnp.log(root), tuple(factor * entry for entry in b)
    q = b[0] * b[0] + b[1] * b[2]
    alpha, beta = _blend(s, q)[2:]
    scale = 1.0 / (alpha * alpha - beta * beta * q)
    x, y = scale * matrices[..., 0, 2], scale * matrices[..., 1, 2]
    offset = alpha * x - beta * (b[0] * x + b[1] * y), alpha * y - beta * (b[2] * x + b[3] * y)
    out = assemble((s + b[0], b[1], b[2], s + b[3]), offset, corner=0.0)
    return jnp.where(exists[..., None, None], out, jnp.nan)


def _blend(s: jax.Array, q: jax.Array) -> tuple[jax.Array, ...]:
    """Return even, odd, alpha, beta with exp(A) = even 1 + odd B and V(A) = alpha 1 + beta B."""
    # The last node is 1: exp(A) itself.
    nodes = jnp.asarray(np.append(_NODES, 1.0), s.dtype)
    s, q = s[..., None] * nodes, q[..., None] * nodes * nodes
    # All branches are evaluated, each at a safe argument: sqrt has an infinite derivative at 0.
    real, turn = q > 0.25, q < -0.25
    small = jnp.where(real | turn, 0.0, q)
    r, w = jnp.sqrt(jnp.where(real, q, 1.0)), jnp.sqrt(jnp.where(turn, -q, 1.0))
    # e^s inside: e^s cosh r is finite where cosh r alone overflows.
    grow, shrink, scale = jnp.exp(jnp.where(real, s + r, 0.0)), jnp.exp(s - r), jnp.exp(s)
    cosh = _polynomial(small, 1 / 40320, 1 / 720, 1 / 24, 1 / 2, 1.0)
    sinh = _polynomial(small, 1 / 362880, 1 / 5040, 1 / 120, 1 / 6, 1.0)
    even = jnp.where(real, 0.5 * (grow + shrink), scale * jnp.where(turn, jnp.cos(w), cosh))
    odd = jnp.where(real, 0.5 * (grow - shrink) / r, scale * jnp.where(turn, jnp.sin(w) / w, sinh))
    weights = jnp.asarray(_WEIGHTS, s.dtype)
    alpha = jnp.sum(weights * even[..., :-1], axis=-1)
    beta = jnp.sum(weights * jnp.asarray(_NODES, s.dtype) * odd[..., :-1], axis=-1)
    return even[..., -1], odd[..., -1], alpha, beta


def _polynomial(x: jax.Array, *coefficients: float) -> jax.Array:
    """Evaluate a polynomial, its highest power first, in the precision of x."""
    return jnp.polyval(jnp.asarray(coefficients, x.dtype), x)


def _split(matrix: jax.Array) -> tuple[jax.Array, jax.Array, tuple[jax.Array, ...]]:
    """Split the 2x2 part into s 1 + B, tr B = 0; return s, q with B^2 = q 1, and B by rows."""
    a, b, c, d = (matrix[..., i, j] for i in range(2) for j in range(2))
    half = 0.5 * (a - d)
    return 0.5 * (a + d), half * half + b * c, (half, b, c, -half)


def assemble(
    linear: Sequence[jax.Array], offset: Sequence[jax.Array], corner: float = 1.0
) -> jax.Array:
    """Build (..., 3, 3) from the linear part by rows, the offset, and the corner."""
    a, b, c, d = linear
    zero = jnp.zeros_like(a)
    flat = jnp.stack([a, b, offset[0], c, d, offset[1], zero, zero, zero + corner], axis=-1)
    return flat.reshape(*a.shape, 3, 3)


def inverse(matrix: jax.Array) -> jax.Array:
    """Invert affine matrices in closed form."""
    a, b, c, d = (matrix[..., i, j] for i in range(2) for j in range(2))
    x, y = matrix[..., 0, 2], matrix[..., 1, 2]
    scale = 1.0 / (a * d - b * c)
    a, b, c, d = scale * d, -scale * b, -scale * c, scale * a
    return assemble((a, b, c, d), (-(a * x + b * y), -(c * x + d * y)))


def as_matrices(matrix: ArrayLike) -> jax.Array:
    """Return (..., 3, 3) as float32 at least; refuse other shapes."""
    matrix = jnp.asarray(matrix)
    if matrix.shape[-2:] != (3, 3):
        raise ValueError(f"matrices have shape {matrix.shape}; want (..., 3, 3).")
    return matrix.astype(jnp.promote_types(matrix.dtype, jnp.float32))
