"""The evidence of a network at its best weights: Laplace's approximation, Kronecker-factored.

    log p(y | eta) ~ sum_n log p(y_n | f(x_n)) + P / 2 log delta - delta |w|^2 / 2
                     - 1 / 2 log det(H + delta I)

f = mean over the views of the logits, w all P weights, with the prior N(0, I / delta), H the
generalised Gauss-Newton matrix sum_n J_n^T (diag p_n - p_n p_n^T) J_n, J_n the derivative of f in
the weights. By layer H is taken as N A x B: A the second moment of the inputs, B that of the
derivatives in the outputs, both of their means over the views; weights and biases are blocks of
their own. Everything is a pure function and has a gradient, in what made the views too.

Source: Immer et al., Invariance learning in deep neural networks with differentiable Laplace
    approximations (LILA), 2022. Of the libraries in JAX, kfac-jax takes its factors of single rows
    of a batch, so that views of one image would count apart, and laplax has no Kronecker factors.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict

__all__ = ["Linearized", "Spectrum", "evidence", "linearize", "log_determinant", "spectrum"]


class Linearized(NamedTuple):
    """A network around its weights.

    Attributes:
        logits: (N, C), means over the views.
        inputs: of every layer, (N, in), means over the views.
        slopes: of every layer, (C, N, out): of the logits in its outputs, means over the views.
    """

    logits: jax.Array
    inputs: dict[str, jax.Array]
    slopes: dict[str, jax.Array]


class Spectrum(NamedTuple):
    """Eigenvalues of the factors of H, by layer: N A is `inputs`, B / N `slopes`, 0 and up.

    Attributes:
        inputs: (in,), of A = mean of a a^T.
        slopes: (out,), of B = sum of g^T (diag p - p p^T) g.
    """

    inputs: dict[str, jax.Array]
    slopes: dict[str, jax.Array]


def linearize(classifier: nn.Module, params: Mapping[str, Any], views: jax.Array) -> Linearized:
    """Return what the curvature is made of.

    Args:
        classifier: of Dense layers alone.
        params: of it.
        views: (n, N, H, W, C), n of every image.

    Raises:
        ValueError: if it has weights of other layers, whose factors would be missing.
    """
    copies, count = views.shape[:2]
    widths = _widths(classifier, params)

    def run(moved: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        inputs: dict[str, jax.Array] = {}

        def intercept(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
            out = call(*args, **kwargs)
            if not (isinstance(context.module, nn.Dense) and context.method_name == "__call__"):
                return out
            name = "/".join(context.module.path)
            inputs[name] = jnp.mean(args[0].reshape(copies, count, -1), axis=0)
            # One change for all views of an image: its slope is the mean over them.
            return (out.reshape(copies, count, -1) + moved[name]).reshape(out.shape)

        with nn.intercept_methods(intercept):
            flat = views.reshape(-1, *views.shape[2:])
            logits: Any = classifier.apply({"params": params}, flat, train=False)
        return jnp.mean(logits.reshape(copies, count, -1), axis=0), inputs

    unmoved = {name: jnp.zeros((count, width)) for name, width in widths.items()}
    logits, back, inputs = jax.vjp(run, unmoved, has_aux=True)
    classes = logits.shape[-1]
    each = jnp.broadcast_to(jnp.eye(classes)[:, None], (classes, count, classes))
    (slopes,) = jax.vmap(back)(each)
    return Linearized(logits, inputs, slopes)


def spectrum(
    linearized: Linearized, probabilities: jax.Array | None = None, *, scale: float = 1.0
) -> Spectrum:
    """Return the eigenvalues that the determinant hangs on.

    Args:
        linearized: of the images.
        probabilities: p, (N, C); None: of a normal likelihood of variance 1, whose Hessian in the
            outputs is I.
        scale: what the sums over the images are multiplied by: all images over these.
    """
    inputs, slopes = {}, {}
    for name, a in linearized.inputs.items():
        g = linearized.slopes[name]
        if probabilities is None:
            outer = jnp.einsum("cno,cnq->oq", g, g)
        else:
            mean = jnp.einsum("nc,cno->no", probabilities, g)
            outer = jnp.einsum("cno,nc,cnq->oq", g, probabilities, g) - mean.T @ mean
        inputs[name] = jnp.maximum(jnp.linalg.eigvalsh(a.T @ a / len(a)), 0.0)
        slopes[name] = scale * jnp.maximum(jnp.linalg.eigvalsh(outer), 0.0)
    return Spectrum(inputs, slopes)


def log_determinant(spectrum: Spectrum, precision: jax.Array) -> jax.Array:
    """Return log det(H + precision I), over the weights and biases of all layers."""
    total = jnp.zeros(())
    for name, a in spectrum.inputs.items():
        b = spectrum.slopes[name]
        total += jnp.sum(jnp.log(a[:, None] * b + precision)) + jnp.sum(jnp.log(b + precision))
    return total


def evidence(
    log_likelihood: jax.Array,
    params: Mapping[str, Any],
    spectrum: Spectrum,
    log_precision: jax.Array,
) -> jax.Array:
    """Return the logarithm of the evidence, nats of all images together.

    Args:
        log_likelihood: of all images.
        params: of the network, w.
        spectrum: of its curvature.
        log_precision: log delta, of the prior.
    """
    weights = jax.tree.leaves(params)
    size, squares = sum(w.size for w in weights), sum(jnp.sum(w**2) for w in weights)
    precision = jnp.exp(log_precision)
    log_prior = 0.5 * (size * log_precision - precision * squares)
    return log_likelihood + log_prior - 0.5 * log_determinant(spectrum, precision)


def _widths(classifier: nn.Module, params: Mapping[str, Any]) -> dict[str, int]:
    """Return the outputs of every layer by its path."""
    flat: dict[str, Any] = flatten_dict(dict(params), sep="/")
    widths = {
        name.removesuffix("/kernel"): leaf.shape[1]
        for name, leaf in flat.items()
        if name.endswith("/kernel") and leaf.ndim == 2
    }
    known = {f"{name}/{part}" for name in widths for part in ("kernel", "bias")}
    other = sorted({*flat} ^ known)
    if other or not widths:
        raise ValueError(
            f"{type(classifier).__name__} is not made of Dense layers with biases alone "
            f"({other[0] if other else 'it has no weights'}), and the evidence knows the curvature "
            "of those; take mlp."
        )
    return widths
