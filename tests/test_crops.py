"""Distributions over crops: which crop a unit stands for, masses, entropies, draws, refusals."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import laws_distributions as laws
import numpy as np
import pytest
from crop_cases import (
    ALPHA,
    PICTURE,
    TRANSFORM,
    flow_lrp,
    fresh,
    gradient_is_that_of_exact_sums,
    h,
    lrp,
)
from laws_distributions import case

from flowjax_inv.distributions.crop_densities import CropCategorical
from flowjax_inv.distributions.crops import InstaAugLRP
from flowjax_inv.metrics import entropy
from flowjax_inv.transforms import Affine, Crop


@pytest.fixture(scope="module")
def at_64() -> Any:
    """The variables of the levels [2, 3, -1] for 64x64 images."""
    return jax.jit(InstaAugLRP(dim=4).init)(jax.random.key(0), PICTURE)


@pytest.mark.slow
def test_321_crops_by_as_many_parameters_as_the_code(at_64: Any) -> None:
    assert sum(leaf.size for leaf in jax.tree.leaves(at_64["params"])) == 21_881
    density: Any = InstaAugLRP(dim=4).apply(at_64, PICTURE)
    assert density.probs.shape == (1, 321)
    sizes = TRANSFORM.boxes(density.atoms)[:, 2:]
    np.testing.assert_allclose(sizes[:256], 0.375, rtol=1e-6)
    np.testing.assert_allclose(sizes[256:320], 0.75, rtol=1e-6)
    np.testing.assert_allclose(TRANSFORM.boxes(density.atoms)[320], [0, 0, 1, 1], atol=1e-6)


@pytest.mark.slow
def test_levels_weigh_as_supervised_instaaug_starts(at_64: Any) -> None:
    """With heads at zero: level masses in proportion to e^0, e^1, e^3; entropy 1.232."""
    nothing = jax.tree.map(jnp.zeros_like, at_64["params"])
    module = InstaAugLRP(dim=4)
    density: Any = module.apply({**at_64, "params": nothing}, PICTURE)
    masses = [density.probs[0, a:b].sum() for a, b in ((0, 256), (256, 320), (320, 321))]
    np.testing.assert_allclose(masses, jax.nn.softmax(jnp.array([0.0, 1.0, 3.0])), rtol=1e-5)
    assert float(density.entropy()[0]) == pytest.approx(1.232, abs=1e-3)
    np.testing.assert_allclose(density.mode(), [[0, 0, 1, 1]], atol=1e-6)


@pytest.mark.slow
def test_contrastive_levels_and_given_preferences() -> None:
    module = InstaAugLRP(dim=4, levels=(3, -1), level_bias=(1.0, 1.0))
    variables = jax.jit(module.init)(jax.random.key(0), PICTURE)
    nothing = jax.tree.map(jnp.zeros_like, variables["params"])
    density: Any = module.apply({**variables, "params": nothing}, PICTURE)
    assert density.probs.shape == (1, 65)
    assert float(density.probs[0, 64]) == pytest.approx(0.5, abs=1e-6)
    assert float(density.entropy()[0]) == pytest.approx(2.773, abs=1e-3)


@pytest.mark.slow
def test_with_room_alone_crops_that_leave_the_picture_are_left_out(at_64: Any) -> None:
    density: Any = InstaAugLRP(dim=4, centre="room").apply(at_64, PICTURE)
    assert density.probs.shape == (1, 100 + 4 + 1)
    boxes = Crop(centre="room").boxes(density.atoms)
    assert float(jnp.max(jnp.abs(boxes[:, :2]) + boxes[:, 2:])) <= 1 + 1e-6
    whole: Any = InstaAugLRP(dim=4).apply(at_64, PICTURE)
    same = jnp.abs(TRANSFORM.boxes(whole.atoms) - boxes[:, None]).max(-1) < 1e-5
    assert bool(jnp.all(same.any(-1)))  # the others are where they were


@pytest.mark.slow
@pytest.mark.parametrize(("first", "count", "row", "column"), [(0, 16, 3, 10), (256, 8, 1, 3)])
def test_a_dot_under_a_unit_is_the_centre_of_its_crop(
    at_64: Any, first: int, count: int, row: int, column: int
) -> None:
    """Neither mirrored nor transposed: by the real transform and by the real network."""
    block = 64 // count
    y, x = row * block + block // 2, column * block + block // 2
    dot = PICTURE.at[:, y - 1 : y + 1, x - 1 : x + 1].set(1.0)
    density: Any = InstaAugLRP(dim=4).apply(at_64, dot)
    theta = density.atoms[first + row * count + column]
    view = np.asarray(TRANSFORM(dot[0], theta))[..., 0]
    place = [(view.sum(axis) * np.arange(64)).sum() / view.sum() for axis in (0, 1)]
    np.testing.assert_allclose(place, 31.5, atol=1e-3)
    # The unit that the dot moves most is the one that stands for it, or a neighbour of it.
    blank: Any = InstaAugLRP(dim=4).apply(at_64, PICTURE)
    moved = (density.log_mass - blank.log_mass)[0, first : first + count**2]
    moved = np.asarray(moved).reshape(count, count)
    moved = (moved - moved[-1, 0]) ** 2  # a corner out of sight moves with the sum of all alone
    at = [(moved.sum(axis) * np.arange(count)).sum() / moved.sum() for axis in (1, 0)]
    np.testing.assert_allclose(at, [row, column], atol=1.0)


@pytest.mark.slow
def test_pictures_that_are_not_square_and_odd_sides() -> None:
    module = InstaAugLRP(dim=4, levels=(1, 2, -1), min_size=0.2)
    density = fresh(module, jnp.zeros((2, 50, 36, 1)))
    assert density.probs.shape == (2, 25 * 18 + 13 * 9 + 1)
    boxes = Crop(min_size=0.2, centre="picture").boxes(density.atoms)
    np.testing.assert_allclose(boxes[0], [-17 / 18, -24 / 25, 12 / 36, 12 / 50], atol=1e-6)
    np.testing.assert_allclose(boxes[450 + 1], [-6 / 9, -12 / 13, 24 / 36, 24 / 50], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["score", "gumbel_softmax"])
def test_draws_follow_the_masses(gradient: str) -> None:
    """Chi-square of 20,000 draws per image at 1e-4; log_prob is the log mass of the drawn crop."""
    from scipy import stats

    chosen = case("", lrp(gradient=gradient))
    probs, atoms = chosen.of(lambda density: (density.probs, density.atoms))
    np.testing.assert_allclose(probs.sum(-1), 1.0, rtol=1e-5)
    theta, log_prob = chosen.drawn(jax.random.key(3), (20_000,))
    hit = (np.asarray(theta)[..., None, :] == np.asarray(atoms)).all(-1)
    assert (hit.sum(-1) == 1).all(), "a sample is exactly one crop"
    for image in range(3):
        expected = 20_000 * np.asarray(probs[image], np.float64)
        expected *= 20_000 / expected.sum()
        assert expected.min() > 5
        assert stats.chisquare(hit[:, image].sum(0), expected).pvalue > 1e-4
    np.testing.assert_allclose(chosen.log_prob(theta), log_prob, rtol=1e-6)
    np.testing.assert_allclose(jnp.exp(log_prob), (hit * probs).sum(-1), rtol=1e-5)


def test_the_noise_is_gumbels() -> None:
    """Exponential noise, as in InstaAug's code, would draw 0.944."""
    density = CropCategorical(jnp.log(jnp.array([[0.9, 0.1]])), jnp.array([[1.0], [0.0]]))
    drawn = density.sample(seed=jax.random.key(0), sample_shape=(50_000,))
    assert float(jnp.mean(drawn)) == pytest.approx(0.9, abs=0.006)


@pytest.mark.slow
def test_theta_that_is_no_crop_has_no_mass() -> None:
    density: Any = case("", lrp()).density()
    atoms = density.atoms[:, None] + jnp.zeros((3, 1))
    np.testing.assert_allclose(jnp.exp(density.log_prob(atoms)).sum(0), 1.0, rtol=1e-5)
    np.testing.assert_allclose(density.log_prob(atoms + 1e-6), density.log_prob(atoms))
    assert density.log_prob(atoms.at[..., 2].add(-0.01)).max() == -np.inf


@pytest.mark.slow
def test_closed_form_entropy_is_the_sampled_one() -> None:
    density: Any = case("", lrp()).density()
    exact = np.asarray(density.entropy())
    sampled = entropy(density, key=jax.random.key(1), num_samples=20_000)
    np.testing.assert_allclose(exact, sampled, atol=0.03)
    assert exact.max() < np.log(5)
    assert float(lrp().regularizer(density, jnp.zeros((1, 3)))) == pytest.approx(-exact.mean())


@pytest.mark.slow
def test_a_key_per_row_is_that_rows_alone() -> None:
    chosen, keys, order = (
        case("", lrp()),
        jax.random.split(jax.random.key(5), 3),
        np.array([2, 0, 1]),
    )
    theta = chosen.density().sample(seed=keys, sample_shape=(40,))
    moved = chosen.density(laws.IMAGES[order]).sample(seed=keys[order], sample_shape=(40,))
    np.testing.assert_array_equal(moved, theta[:, order])
    same = chosen.density(jnp.repeat(laws.IMAGES[:1], 3, axis=0)).sample(
        seed=keys, sample_shape=(40,)
    )
    assert bool((same[:, 0] != same[:, 1]).any())


@pytest.mark.slow
def test_gumbel_softmax_carries_a_gradient_downhill() -> None:
    """E[theta] of two crops: d/dlogit of p is p (1 - p) = 1/4, straight-through a bit less."""

    def mean(logit: jax.Array, temperature: float | None) -> jax.Array:
        logits = jnp.stack([jnp.zeros(()), logit])[None]
        density = CropCategorical(logits, jnp.array([[0.0], [1.0]]), temperature)
        return jnp.mean(density.sample(seed=jax.random.key(0), sample_shape=(20_000,)))

    assert 0.15 < jax.grad(mean)(jnp.zeros(()), 0.5) < 0.35
    assert jax.grad(mean)(jnp.zeros(()), None) == 0
    assert lrp(gradient="gumbel_softmax").reparameterized
    assert not lrp().reparameterized


@pytest.mark.slow
def test_the_score_functions_gradient_is_that_of_the_sum() -> None:
    chosen = case("", lrp())

    def exact(variables: Any) -> float:
        density: Any = chosen.density(variables=variables)
        p = np.asarray(density.probs, np.float64)
        return float(np.mean(p @ np.asarray(h(density.atoms)) + ALPHA * (p * np.log(p)).sum(-1)))

    gradient_is_that_of_exact_sums(chosen, exact, 0.005, 4_000)


ROTATION = Affine("rotation_translation")
REFUSALS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: InstaAugLRP(dim=1, names=Affine("rotation").names),
        r"InstaAugLRP got a transform with dim 1, coordinates \(rotation\); .*take the transform c",
    ),
    (lambda: flow_lrp(dim=3, names=ROTATION.names), r"FlowLRP got a transform with dim 3"),
    (lambda: lrp(names=tuple("abcd")), r"dim 4, coordinates \(a, b, c, d\); it is of crops alone"),
    (lambda: lrp(levels=()), r"levels=\(\) of InstaAugLRP; want one or more of 0, 1, 2, 3, -1"),
    (lambda: lrp(levels=(3, 3)), r"levels=\(3, 3\) .*each once"),
    (lambda: lrp(levels=(4, -1)), r"levels=\(4, -1\) .*want one or more of 0, 1, 2, 3, -1"),
    (lambda: lrp(sizes=(0.5,)), r"sizes=\(0.5,\) for levels=\(1, -1\); give one number per level"),
    (lambda: lrp(level_bias=(1.0,) * 3), r"level_bias=\(1.0, 1.0, 1.0\) for levels=\(1, -1\)"),
    (lambda: lrp(sizes=(0.1, 1.0)), "level 1 has crops of size 0.1; the transform allows 0.25"),
    (
        lambda: fresh(lrp(levels=(0, 1), sizes=(0.5, 0.5))),
        r"levels=\(0, 1\) with sizes=\(0.5, 0.5\) have crops in common",
    ),
    (lambda: flow_lrp(gumbel="score"), 'gumbel is "score"; FlowLRP scores its crops'),
    (lambda: lrp(gradient="path"), r"gradient='path' is unknown; .*score, gumbel_softmax"),
    (lambda: lrp(temperature=0.0), r"temperature=0.0; want a number above 0"),
    (lambda: lrp(centre="middle"), r"centre='middle' is unknown; .*room, picture"),
    (lambda: lrp(min_size=0.9, max_size=0.8), r"0 < min_size < max_size <= 1"),
    (
        lambda: fresh(InstaAugLRP(dim=4), jnp.zeros((1, 32, 32, 3))),
        r"level 3 on 32x32 images has crops of size 1.5; the transform allows 0.25 .. 1: leave",
    ),
    (
        lambda: fresh(InstaAugLRP(dim=4, max_size=0.9)),
        r"level -1 on 64x64 images has crops of size 1; the transform allows 0.25 .. 0.9",
    ),
    (
        lambda: fresh(InstaAugLRP(dim=4, levels=(1,), min_size=0.2)),
        r"level 1 on 64x64 images has crops of size 0.188; the transform allows 0.2 .. 1",
    ),
    (
        lambda: fresh(lrp(levels=(1,), sizes=(0.9,), centre="room"), jnp.zeros((1, 4, 4, 1))),
        r"level 1 on 4x4 images gives no crop: at size 0.9 none of its 4 stays in the picture",
    ),
    (lambda: fresh(lrp(), jnp.zeros((4, 4, 1))), r"shape \(4, 4, 1\); InstaAugLRP wants \(N, H, W"),
    (
        lambda: fresh(flow_lrp(sizes=(1.0, 1.0)), laws.IMAGES),
        r"levels=\(1, -1\) have crops of sizes \(1, 1\), whose cells overlap; give each",
    ),
]


@pytest.mark.parametrize(("make", "text"), REFUSALS, ids=[text[:24] for _, text in REFUSALS])
def test_refusals(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        make()
    assert "\n" not in str(caught.value)
