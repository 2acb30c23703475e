"""Laws that every transform obeys: plain functions of one transform, called by the tests."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowjax_inv.transforms import Chain, Spatial, Transform

HEIGHT, WIDTH = 10, 7  # not square: an exchange of x and y shows


def thetas(transform: Transform, count: int, reach: float, seed: int = 0) -> jax.Array:
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.uniform(-reach, reach, (count, transform.dim)), jnp.float32)


def noise(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(7).normal(size=shape), jnp.float32)


def smooth_picture(height: int = 48, width: int = 40) -> jax.Array:
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    waves = [np.sin(1.9 * x + 0.7 * y + 0.3), np.cos(1.1 * x - 2.3 * y) * x, np.sin(y - 0.4 * x)]
    return jnp.asarray(np.stack(waves, -1), jnp.float32)


def compositions(transform: Transform) -> tuple[jax.Array, jax.Array]:
    """Pairs of theta whose composition has coordinates: the whole box unless exp may leave it."""
    reach = 1.0 if transform.commutative or any(transform.periodic) else 0.4
    return thetas(transform, 12, reach, 1), thetas(transform, 12, reach, 2)


def spatial_part(transform: Transform) -> Spatial | None:
    """What of a transform moves pixels, zeros outside the picture."""
    part = transform.spatial if isinstance(transform, Chain) else transform
    return dataclasses.replace(part, padding="zeros") if isinstance(part, Spatial) else None


def zero_padded(transform: Transform) -> Transform:
    """The same with zeros outside the picture, where it moves pixels."""
    if isinstance(transform, Chain):
        return dataclasses.replace(transform, spatial=spatial_part(transform))
    return spatial_part(transform) or transform


def labels_fit(transform: Transform) -> None:
    for labels in (transform.names, transform.units, transform.half_range, transform.periodic):
        assert isinstance(labels, tuple)
        assert len(labels) == transform.dim
    assert len(set(transform.names)) == transform.dim
    assert hash(transform) == hash(transform)  # so it can be a static argument


def identity_is_exact(transform: Transform) -> None:
    identity = transform.identity
    assert identity.shape == (transform.dim,)
    matrix = np.asarray(transform.matrix(identity))
    one = np.eye(len(matrix))
    np.testing.assert_allclose(matrix, one, atol=2e-7)
    images = noise(2, HEIGHT, WIDTH, 3)
    out = transform(images, identity)
    if np.array_equal(matrix, one):
        np.testing.assert_array_equal(out, images)
    np.testing.assert_allclose(out, images, atol=1e-5)
    assert bool(jnp.all(transform.valid_mask(identity, HEIGHT, WIDTH)))
    np.testing.assert_allclose(transform.coordinates(one), identity, atol=1e-6)


def inverse_undoes(transform: Transform) -> None:
    theta = thetas(transform, 12, 0.95)
    back = transform.matrix(transform.inverse(theta))
    both = np.asarray(back) @ np.asarray(transform.matrix(theta))
    np.testing.assert_allclose(both, np.broadcast_to(np.eye(both.shape[-1]), both.shape), atol=2e-4)


def undo_brings_back(transform: Transform) -> None:
    moves = spatial_part(transform)
    theta = 0.3 * thetas(transform, 6, 1.0)
    picture, (height, width) = smooth_picture(), smooth_picture().shape[:2]
    if moves is None:  # what is found in a view is where it is in the image
        assert np.array_equal(
            transform.undo(picture, theta), np.broadcast_to(picture, (6, height, width, 3))
        )
        assert bool(transform.undone_mask(theta, height, width).all())
        points = jnp.ones((6, 9, 2))
        assert np.array_equal(transform.points_in_image(points, theta), points)
        return
    own = theta[:, : moves.dim]
    back = zero_padded(transform).undo(moves(picture, own), theta)
    # A picture of ones comes back as ones where its view showed it, and not where it did not.
    ones = moves.undo(moves(jnp.ones_like(picture), own), own)[..., 0]
    shown = np.asarray(transform.undone_mask(theta, height, width))
    clear = np.asarray(ones) > 0.9999
    assert (clear <= shown).all()
    assert (shown & ~clear).mean() < 0.1  # rims alone
    assert np.abs(np.asarray(back - picture)).max(-1)[clear].max() < 0.02
    # Points go the same way: what the view shows at x is the picture at M x.
    points = jnp.asarray(np.random.default_rng(4).uniform(-0.5, 0.5, (6, 9, 2)), jnp.float32)
    there = np.asarray(transform.points_in_image(points, theta))
    column = np.concatenate([points, np.ones((6, 9, 1))], -1)[..., None]
    expected = (np.asarray(moves.matrix(own))[:, None] @ column)[..., :2, 0]
    np.testing.assert_allclose(there, expected, atol=1e-5)


def compose_is_the_matrix_product(transform: Transform) -> None:
    a, b = compositions(transform)
    product = np.asarray(transform.matrix(b)) @ np.asarray(transform.matrix(a))
    if not transform.closed:
        with pytest.raises(ValueError, match=r"not closed.*Multiply the matrices"):
            transform.compose(a, b)
        best = np.asarray(transform.matrix(transform.coordinates(product)))
        assert np.abs(best - product).max() > 1e-2
        return
    np.testing.assert_allclose(transform.matrix(transform.compose(a, b)), product, atol=2e-4)


def compose_is_warping_twice(transform: Transform) -> None:
    if not transform.closed:
        return  # that it refuses is another law
    transform, moves = zero_padded(transform), spatial_part(transform)
    a, b = (0.3 * theta[:6] for theta in compositions(transform))
    picture = smooth_picture()
    once = transform(picture, transform.compose(a, b))
    twice = transform(transform(picture, b), a)
    # Compare where neither way saw padding: a picture of ones is still 1 there.
    ok = np.ones((6, *picture.shape[:2]), bool)
    if moves is not None:
        ones, (a_, b_) = jnp.ones((*picture.shape[:2], 1)), (t[:, : moves.dim] for t in (a, b))
        ones = jnp.minimum(moves(moves(ones, b_), a_), moves(ones, moves.compose(a_, b_)))
        ok = np.asarray(ones[..., 0]) > 0.9999
    assert ok.mean() > 0.1
    error = np.abs(np.asarray(once - twice)).max(-1)
    assert error[ok].max() < 0.01
    if not transform.commutative:  # then the other order must be seen to be wrong
        swapped = transform(picture, transform.compose(b, a))
        assert np.abs(np.asarray(swapped - twice)).max(-1)[ok].max() > 3 * error[ok].max()


def coordinates_undo_matrix(transform: Transform) -> None:
    theta = thetas(transform, 12, 0.95)
    np.testing.assert_allclose(transform.coordinates(transform.matrix(theta)), theta, atol=3e-4)


def periodic_exactly_where_said(transform: Transform) -> None:
    theta = thetas(transform, 12, 1.0)
    matrix = np.asarray(transform.matrix(theta))
    for i, periodic in enumerate(transform.periodic):
        moved = np.asarray(transform.matrix(theta.at[:, i].add(2.0)))
        same = np.abs(moved - matrix).max(axis=(1, 2)) < 1e-4
        assert same.all() if periodic else not same.any()
        if periodic:
            a, b = compositions(transform)
            for out in (transform.compose(a, b), transform.inverse(jnp.sign(a))):
                assert bool(jnp.all((out[:, i] >= -1) & (out[:, i] < 1)))


def commutative_exactly_if_so(transform: Transform) -> None:
    a, b = (np.asarray(transform.matrix(theta)) for theta in compositions(transform))
    gap = np.abs(a @ b - b @ a).max()
    assert gap < 1e-5 if transform.commutative else gap > 1e-3


def gradients_are_finite_and_right(transform: Transform) -> None:
    # Twelve points for every transform, and no jit around them: so the programs are shared.
    corners = jnp.sign(thetas(transform, 12, 1.0, seed=3))
    points = jnp.concatenate([thetas(transform, 4, 0.9), 0 * corners[:1], corners[:5]])
    points = jnp.concatenate([points, jnp.where(jnp.arange(transform.dim) == 0, corners[:2], 0)])
    images = noise(HEIGHT, WIDTH, 3)
    out, pull = jax.vjp(lambda theta: transform(images, theta), points)
    (gradients,) = pull(noise(*out.shape))
    assert bool(jnp.all(jnp.isfinite(gradients)))

    def there_and_back(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        matrix = transform.matrix(theta)
        return matrix, transform.coordinates(matrix)

    for i in range(transform.dim):
        along = jnp.zeros_like(points).at[:, i].set(1.0)
        _, (slopes, unit) = jax.jvp(there_and_back, (points,), (along,))
        assert bool(jnp.all(jnp.isfinite(slopes)))
        assert bool(jnp.max(jnp.abs(slopes)) > 1e-3)  # not dead
        step = 1e-2 * along
        wanted = (transform.matrix(points + step) - transform.matrix(points - step)) / 2e-2
        np.testing.assert_allclose(slopes[:4], wanted[:4], rtol=1e-2, atol=2e-2)
        # At the edge there may be no coordinates (half a turn, a crop of everything).
        np.testing.assert_allclose(unit[:5], along[:5], atol=1e-2)


def leading_axes_broadcast(transform: Transform) -> None:
    images = noise(3, HEIGHT, WIDTH, 3)
    theta = thetas(transform, 6, 0.9).reshape(2, 3, transform.dim)
    out = transform(images, theta)
    assert out.shape == (2, 3, HEIGHT, WIDTH, 3)
    assert transform.matrix(theta).shape[:2] == (2, 3)
    assert transform.valid_mask(theta, HEIGHT, WIDTH).shape == (2, 3, HEIGHT, WIDTH)
    assert transform.inverse(theta).shape == theta.shape
    one = transform(images[1], theta[1, 1])
    np.testing.assert_allclose(one, out[1, 1], atol=1e-5)
    empty = transform(images[:0], theta[:, :0])
    assert empty.shape == (2, 0, HEIGHT, WIDTH, 3)
    with pytest.raises(ValueError, match=rf"theta has shape .* wants \(\.\.\., {transform.dim}\)"):
        transform(images, jnp.zeros((3, transform.dim + 1)))


def jit_and_vmap_agree(transform: Transform) -> None:
    images, theta = noise(12, HEIGHT, WIDTH, 3), thetas(transform, 12, 0.9)

    def all_of_it(images: jax.Array, theta: jax.Array) -> tuple[jax.Array, ...]:
        coordinates = transform.coordinates(transform.matrix(theta))
        return transform(images, theta), coordinates

    eager = all_of_it(images, theta)
    compiled = jax.jit(jax.vmap(all_of_it))(images, theta)
    for x, y in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(x, y, atol=2e-4)
