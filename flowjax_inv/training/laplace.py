"""The evidence of a network at its best weights: Laplace's approximation, Kronecker-factored.

    log p(y | eta) ~ sum_n log p(y_n | f(x_n)) + P / 2 log delta - delta |w|^2 / 2
                     - 1 / 2 log det(H + delta I)

f = mean over the views of the logits, w all P weights, with the prior N(0, I / delta), H the
generalised Gauss-Newton matrix sum_n J_n^T (diag p_n - p_n p_n^T) J_n, J_n the derivative of f in
the weights. By layer H is taken as N A x B: A the second moment of the inputs, B that of the
derivatives in the outputs, both of their means over the views; of a convolution A is summed over
positions, B averaged. Weights and biases are blocks of their own. Numbers that belong to no layer
(the scalars of Fixup) have neither prior nor curvature: they are taken as given. Everything is a
pure function and has a gradient, in what made the views too.

Source: Immer et al., Invariance learning in deep neural networks with differentiable Laplace
    approximations (LILA), 2022; convolutions as in Grosse and Martens, 2016. Of the libraries in
    JAX, kfac-jax takes its factors of single rows of a batch, so that views of one image would
    count apart, and laplax has no Kronecker factors.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict

from flowjax_inv.networks.convolutions import Conv

__all__ = [
    "Linearized", "Spectrum", "evidence", "linearize", "log_determinant", "prior", "spectrum",
]  # fmt: skip


class Linearized(NamedTuple):
    """A network around its weights.

    Attributes:
        logits: (N, C), means over the views.
        inputs: of every layer, (N, P, in), means over the views; P positions, 1 of a Dense layer,
            and of a convolution `in` is a patch.
        slopes: of every layer, (C, N, P, out): of the logits in its outputs, means over the views.
        biased: the layers that have a bias.
    """

    logits: jax.Array
    inputs: dict[str, jax.Array]
    slopes: dict[str, jax.Array]
    biased: frozenset[str]


class Spectrum(NamedTuple):
    """Eigenvalues, 0 and up, of the factors of H by layer, Lambda = diag p - p p^T.

    Attributes:
        inputs: (in,), of the mean over images of sum_P a a^T.
        slopes: (out,), of the sum over images of mean_P g^T Lambda g.
        biases: (out,), of the sum over images of (sum_P g)^T Lambda (sum_P g); of layers with one.
    """

    inputs: dict[str, jax.Array]
    slopes: dict[str, jax.Array]
    biases: dict[str, jax.Array]


def linearize(classifier: nn.Module, params: Mapping[str, Any], views: jax.Array) -> Linearized:
    """Return what the curvature is made of.

    Args:
        classifier: of Dense layers and convolutions (`networks.convolutions.Conv`).
        params: of it.
        views: (n, N, H, W, C), n of every image.

    Raises:
        ValueError: if it has weights of other layers, whose factors would be missing.
    """
    copies, count = views.shape[:2]

    def split(rows: jax.Array) -> jax.Array:
        return rows.reshape(copies, count, *rows.shape[1:])

    def run(moved: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        inputs: dict[str, jax.Array] = {}

        def intercept(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
            layer = context.module
            if context.method_name != "__call__" or not isinstance(layer, nn.Dense | Conv):
                return call(*args, **kwargs)
            name = "/".join(layer.path)
            mean = jnp.mean(split(args[0]), axis=0)
            dense = isinstance(layer, nn.Dense)
            inputs[name] = mean[:, None] if dense else layer.patches(mean)
            # One change for all views of an image: its slope is the mean over them.
            out = split(call(*args, **kwargs) if dense else layer.linear(args[0]))
            out = (out + moved[name].reshape(out.shape[1:])).reshape(-1, *out.shape[2:])
            return out if dense else layer.follow(out)

        with nn.intercept_methods(intercept):
            flat = views.reshape(-1, *views.shape[2:])
            logits: Any = classifier.apply({"params": params}, flat, train=False)
        return jnp.mean(split(logits), axis=0), inputs

    unmoved, biased = _layers(classifier, params, views[0])
    logits, back, inputs = jax.vjp(run, unmoved, has_aux=True)
    classes = logits.shape[-1]
    each = jnp.broadcast_to(jnp.eye(classes)[:, None], (classes, count, classes))
    (slopes,) = jax.vmap(back)(each)
    return Linearized(logits, inputs, slopes, biased)


def spectrum(
    linearized: Linearized, probabilities: jax.Array | None = None, *, scale: float = 1.0
) -> Spectrum:
    """Return the eigenvalues that the determinant hangs on.

    Args:
        linearized: of the images.
        probabilities: p, (N, C); None: of a normal likelihood of variance 1, whose Lambda is I.
        scale: what the sums over the images are multiplied by: all images over these.
    """

    def eigenvalues(g: jax.Array) -> jax.Array:
        """Return those of scale * sum of g^T Lambda g over (N, P); g (C, N, P, out)."""
        if probabilities is None:
            outer = jnp.einsum("cnpo,cnpq->oq", g, g)
        else:
            mean = jnp.einsum("nc,cnpo->npo", probabilities, g)
            outer = jnp.einsum("cnpo,nc,cnpq->oq", g, probabilities, g)
            outer -= jnp.einsum("npo,npq->oq", mean, mean)
        return scale * jnp.maximum(jnp.linalg.eigvalsh(outer), 0.0)

    inputs, slopes, biases = {}, {}, {}
    for name, a in linearized.inputs.items():
        g, (number, positions) = linearized.slopes[name], a.shape[:2]
        inputs[name] = _of_moment(a.reshape(-1, a.shape[-1])) / number
        slopes[name] = eigenvalues(g) / positions
        if name in linearized.biased:
            biases[name] = eigenvalues(jnp.sum(g, axis=2, keepdims=True))
    return Spectrum(inputs, slopes, biases)


def _of_moment(rows: jax.Array) -> jax.Array:
    """Return the eigenvalues of rows^T rows, (M, D) to (D,); of the smaller of its two products."""
    number, size = rows.shape
    product = rows.T @ rows if size <= number else rows @ rows.T
    found = jnp.maximum(jnp.linalg.eigvalsh(product), 0.0)
    return jnp.pad(found, (max(size - number, 0), 0))


def log_determinant(spectrum: Spectrum, precision: jax.Array) -> jax.Array:
    """Return log det(H + precision I), over the weights and biases of all layers."""
    total = jnp.zeros(())
    for name, a in spectrum.inputs.items():
        total += jnp.sum(jnp.log(a[:, None] * spectrum.slopes[name] + precision))
    for b in spectrum.biases.values():
        total += jnp.sum(jnp.log(b + precision))
    return total


def prior(params: Mapping[str, Any], log_precision: jax.Array) -> jax.Array:
    """Return P / 2 log delta - delta |w|^2 / 2, nats: log p(w), but for a constant."""
    flat: dict[str, Any] = flatten_dict(dict(params), sep="/")
    weights = [flat[name] for name in _of_layers(flat)]
    size, squares = sum(w.size for w in weights), sum(jnp.sum(w**2) for w in weights)
    return 0.5 * (size * log_precision - jnp.exp(log_precision) * squares)


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
    determinant = log_determinant(spectrum, jnp.exp(log_precision))
    return log_likelihood + prior(params, log_precision) - 0.5 * determinant


def _of_layers(flat: Mapping[str, Any]) -> list[str]:
    """Return the paths of kernels, and of the biases beside them."""
    layers = [name.removesuffix("/kernel") for name in flat if name.endswith("/kernel")]
    both = (f"{layer}/{part}" for layer in layers for part in ("kernel", "bias"))
    return [name for name in both if name in flat]


def _layers(
    classifier: nn.Module, params: Mapping[str, Any], images: jax.Array
) -> tuple[dict[str, jax.Array], frozenset[str]]:
    """Return zeros, (N, P, out), for the outputs of every layer by its path; those with a bias."""
    flat: dict[str, Any] = flatten_dict(dict(params), sep="/")
    known = _of_layers(flat)
    kernels = {name.removesuffix("/kernel") for name in known if name.endswith("/kernel")}
    other = sorted(name for name, leaf in flat.items() if leaf.size > 1 and name not in known)
    shapes: dict[str, tuple[int, ...]] = {}

    def intercept(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        layer, found = context.module, call(*args, **kwargs)
        if context.method_name == "__call__" and isinstance(layer, nn.Dense | Conv):
            out = layer.linear(args[0]) if isinstance(layer, Conv) else found
            shapes["/".join(layer.path)] = (len(out), math.prod(out.shape[1:-1]), out.shape[-1])
        return found

    def traced(images: jax.Array) -> Any:
        with nn.intercept_methods(intercept):
            return classifier.apply({"params": params}, images, train=False)

    if not other:
        jax.eval_shape(traced, images)
        other = sorted(kernels ^ {*shapes})
    if other or not shapes:
        raise ValueError(
            f"{type(classifier).__name__} has weights beside those of Dense layers and "
            f"convolutions ({other[0] if other else 'or none at all'}), whose curvature the "
            "evidence does not know; take mlp, lenet, simple_conv or fixup_resnet."
        )
    unmoved = {name: jnp.zeros(shape) for name, shape in shapes.items()}
    return unmoved, frozenset(name for name in shapes if f"{name}/bias" in flat)
