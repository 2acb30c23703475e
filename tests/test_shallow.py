"""Shallow: its bound lies under the evidence, and both ways to move it are one."""

import math
from typing import Any

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from steps import IMAGES, LABELS, build

from flowjax_inv.distributions.box import Augerino, Fixed
from flowjax_inv.networks import Shallow, warped_filters
from flowjax_inv.training.controllers import Constant
from flowjax_inv.training.objectives import Objective
from flowjax_inv.transforms import Affine

SIZE = (5, 7, 2)  # not square
AFFINE = Affine("affine", half_range=(0.3, 0.3, 90.0, 0.3, 0.3, 0.3), warp="gather")


def variables(network: Any, images: jax.Array, scale: float = 0.3) -> dict[str, Any]:
    """Parameters that are not those of the start."""
    start = network.init(jax.random.key(0), images)["params"]
    leaves, tree = jax.tree.flatten(start)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    moved = [
        leaf + scale * jax.random.normal(key, leaf.shape)
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    return {"params": jax.tree.unflatten(tree, moved)}


def images(count: int = 3) -> jax.Array:
    return jax.random.uniform(jax.random.key(2), (count, *SIZE))


@pytest.mark.slow
def test_the_divergence_is_that_of_normals_and_0_at_the_start() -> None:
    network = Shallow(3, width=4, variance=1.7)
    start = network.init(jax.random.key(0), images())["params"]
    assert float(network.divergence(start)) == pytest.approx(0.0, abs=1e-5)
    params = variables(network, images())["params"]
    factor = network._factor(params["factor"])
    assert (jnp.triu(factor, 1) == 0).all()
    assert (jnp.diagonal(factor, axis1=1, axis2=2) > 0).all()
    prior = distrax.MultivariateNormalTri(
        jnp.zeros(5), jnp.exp(0.5 * params["log_variance"]) * jnp.eye(5)
    )
    expected = sum(
        float(distrax.MultivariateNormalTri(mean, each).kl_divergence(prior))
        for mean, each in zip(params["mean"], factor, strict=True)
    )
    assert float(network.divergence(params)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_draws_follow_the_posterior_and_the_mean_predicts() -> None:
    network = Shallow(2, width=3)
    given = variables(network, images())
    one = images(1)

    def draw(key: jax.Array) -> jax.Array:
        return network.apply(given, one, train=True, rngs={"posterior": key})[0]

    drawn = np.asarray(jax.vmap(draw)(jax.random.split(jax.random.key(3), 20_000)))
    np.testing.assert_allclose(drawn.mean(0), network.apply(given, one)[0], atol=0.05)
    params = given["params"]
    rows = params["filters"].reshape(3, -1)
    phi = math.sqrt(2 / 3) * jnp.cos(one.reshape(1, -1) @ rows.T + params["bias"])
    last = jnp.append(phi[0], 1.0)
    std = jnp.linalg.norm(jnp.einsum("cij,i->cj", network._factor(params["factor"]), last), axis=1)
    np.testing.assert_allclose(drawn.std(0), std, rtol=0.05)


@pytest.mark.slow
def test_an_image_has_one_draw_for_all_of_its_views_by_either_way_of_moving() -> None:
    network: Any = Shallow(3, width=4, acts="filters_exactly")
    given = variables(network, images())
    rngs = {"posterior": jax.random.key(3)}
    theta = jax.random.uniform(jax.random.key(4), (5, 6), minval=-1.0)
    views = AFFINE(images(), theta[:, None])  # (5, 3, ...)
    folded = jnp.moveaxis(views, 0, 1).reshape(-1, *SIZE)
    by_images = network.apply(given, folded, train=True, views=5, rngs=rngs)
    by_filters = network.apply(
        given, images(), theta=theta, transform=AFFINE, train=True, rngs=rngs
    )
    expected = jnp.moveaxis(by_images.reshape(3, 5, 3), 0, 1)
    np.testing.assert_allclose(by_filters, expected, atol=2e-5)
    same = jnp.repeat(images(1), 6, axis=0)
    shared, apart = (
        network.apply(given, same, train=True, views=views, rngs=rngs) for views in (3, 1)
    )
    np.testing.assert_allclose(shared[0], shared[2], atol=1e-6)
    assert float(jnp.abs(shared[0] - shared[3]).max()) > 0.1
    assert float(jnp.abs(apart[0] - apart[1]).max()) > 0.1


def test_the_bound_lies_under_the_evidence() -> None:
    """Linear features and a normal likelihood, where the evidence is known; it meets it at the top.

    The divergence here is that of the network; the expectation of a normal log-likelihood under a
    normal posterior is exact.
    """
    rng = np.random.default_rng(0)
    phi, noise = np.concatenate([rng.normal(size=(20, 3)), np.ones((20, 1))], 1), 0.5
    y = phi @ rng.normal(size=4) + noise * rng.normal(size=20)
    covariance = phi @ phi.T + noise**2 * np.eye(20)
    _, log_det = np.linalg.slogdet(covariance)
    evidence = -0.5 * (y @ np.linalg.solve(covariance, y) + log_det + 20 * math.log(2 * math.pi))

    network = Shallow(1, width=3)

    def bound(params: dict[str, Any]) -> float:
        factor = np.asarray(network._factor(params["factor"]))[0]
        mean = np.asarray(params["mean"])[0]
        misfit = ((y - phi @ mean) ** 2).sum() + ((phi @ factor) ** 2).sum()
        fit = -0.5 * misfit / noise**2 - 20 * math.log(noise * math.sqrt(2 * math.pi))
        return fit - float(network.divergence(params))

    precision = phi.T @ phi / noise**2 + np.eye(4)
    best = np.linalg.cholesky(np.linalg.inv(precision))
    raw = 2.0 * np.tril(best, -1) + np.diag(np.log(np.diag(best)))  # K = 4
    mean = np.linalg.solve(precision, phi.T @ y / noise**2)
    top: dict[str, Any] = {
        "mean": jnp.asarray(mean[None]), "factor": jnp.asarray(raw[None]),
        "log_variance": jnp.zeros(()),
    }  # fmt: skip
    assert bound(top) == pytest.approx(evidence, abs=1e-3)
    for seed in range(5):
        moved = {
            name: leaf + 0.1 * np.random.default_rng(seed).normal(size=leaf.shape)
            for name, leaf in top.items()
            if name != "log_variance"
        }
        assert bound({**top, **moved}) < evidence


def test_filters_moved_exactly_say_what_the_moved_images_say() -> None:
    network: Any = Shallow(3, width=4, acts="filters_exactly")
    given = variables(network, images())
    theta = jax.random.uniform(jax.random.key(4), (5, 6), minval=-1.0)
    views = AFFINE(images(), theta[:, None])
    by_images = jax.vmap(lambda view: network.apply(given, view))(views)
    by_filters = network.apply(given, images(), theta=theta, transform=AFFINE)
    assert by_filters.shape == (5, 3, 3)
    np.testing.assert_allclose(by_filters, by_images, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("exactly", [True, False])
def test_quarter_turns_of_filters_are_those_of_images(exactly: bool) -> None:  # noqa: FBT001
    """The average over the group by moved filters, against brute force: to rounding, either way."""
    square = jax.random.uniform(jax.random.key(5), (3, 6, 6, 1))
    network: Any = Shallow(2, width=4, acts="filters_exactly" if exactly else "filters")
    given = variables(network, square)
    turns = Affine("rotation", warp="gather")
    theta = jnp.array([[0.0], [0.5], [-1.0], [-0.5]])
    by_filters = network.apply(given, square, theta=theta, transform=turns).mean(0)
    brute = jnp.stack([network.apply(given, jnp.rot90(square, k, (1, 2))) for k in range(4)])
    np.testing.assert_allclose(by_filters, brute.mean(0), atol=2e-5)


@pytest.mark.slow
def test_a_shift_by_pixels_of_filters_read_at_inverse_positions() -> None:
    filters = jnp.zeros((1, 5, 5, 1)).at[0, 2, 2, 0].set(1.0)
    shift = Affine("translation", warp="gather")
    theta = jnp.array([[0.5, 0.0]])  # one of two half-widths: a pixel of five
    image = jax.random.uniform(jax.random.key(6), (1, 5, 5, 1))
    for exactly in (True, False):
        moved = warped_filters(filters, theta, shift, exactly=exactly)[0]
        np.testing.assert_allclose(
            jnp.sum(moved * image), jnp.sum(filters * shift(image, theta)), atol=1e-6
        )


def _range_step(network: Shallow, half: float, **objective: Any):
    density = Augerino(dim=1, start_half_range=(half,))
    return build(
        network, density, Constant(0.0),
        Objective(copies=4, average="probs", include_original=False, images=24, **objective),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("acts", ["images", "filters", "filters_exactly"])
def test_a_step_learns_range_and_posterior(acts: Any) -> None:
    network = Shallow(3, width=4, acts=acts)
    state, step = _range_step(network, 0.2)
    start = jax.tree.map(np.asarray, state.params)
    after = step(state, IMAGES, LABELS, jnp.arange(8))
    for module, name in (
        ("distribution", "half_range"), ("classifier", "mean"), ("classifier", "factor"),
    ):  # fmt: skip
        assert (start[module][name] != after.params[module][name]).any(), name
    for name in ("filters", "bias", "log_variance"):  # Fourier features stay as they were drawn
        np.testing.assert_array_equal(
            start["classifier"][name], after.params["classifier"][name], err_msg=name
        )
    totals = after.totals
    cost = float(totals["loss"]) - float(totals["cross_entropy"])
    assert cost == pytest.approx(0.0, abs=1e-5)  # the divergence at the start


def test_a_prior_wants_to_know_for_how_many_images() -> None:
    with pytest.raises(ValueError, match=r"Shallow has a prior .* give Objective\(images=N\)"):
        build(Shallow(3, width=4), Fixed(dim=1), Constant(0.0), Objective())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"variance": 0.0}, "variance=0.0, frequency=0.3; want both above 0"),
        ({"activation": "tanh"}, "activation='tanh' is unknown; did you mean one of cos, relu"),
        ({"acts": "labels"}, "acts='labels' is unknown; did you mean one of images, filters"),
    ],
)
def test_what_is_no_such_network_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Shallow(3, **fields)


@pytest.mark.slow
@pytest.mark.parametrize("acts", ["images", "filters_exactly"])
def test_the_slope_in_the_range_is_that_of_finite_differences(acts: Any) -> None:
    """In double precision, at fixed draws: of the loss that a step has, by either way of moving."""
    with jax.enable_x64(True):
        network: Any = Shallow(3, width=4, acts=acts)
        given = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), variables(network, images()))
        pictures, labels = images().astype(jnp.float64), jnp.arange(3)
        noise = jax.random.uniform(jax.random.key(7), (6, 1), jnp.float64, -1.0)
        turn = Affine("rotation", warp="gather")

        @jax.jit
        def loss(half_range: jax.Array) -> jax.Array:
            theta = half_range * noise
            if acts == "images":
                views = turn(pictures, theta[:, None])
                logits = jax.vmap(lambda view: network.apply(given, view))(views)
            else:
                logits = network.apply(given, pictures, theta=theta, transform=turn)
            return jnp.mean(Objective(average="logits").cost(logits, labels, "logits"))

        at, step = jnp.float64(0.3), 1e-6
        slope = (loss(at + step) - loss(at - step)) / (2 * step)
        assert float(jax.grad(loss)(at)) == pytest.approx(float(slope), rel=1e-5)
        assert abs(float(slope)) > 1e-3
