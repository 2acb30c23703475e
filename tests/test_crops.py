"""Distributions over crops: which crop a unit stands for, masses, densities and their gradients."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import laws_distributions as laws
import numpy as np
import optax
import pytest
from laws_distributions import Case, Pixels, case

from flowjax_inv import training
from flowjax_inv.controllers import Constant
from flowjax_inv.distributions.crop_densities import CropCategorical
from flowjax_inv.distributions.crops import FlowLRP, InstaAugLRP
from flowjax_inv.metrics import entropy
from flowjax_inv.networks import MLP
from flowjax_inv.objectives import Objective, score_function_term
from flowjax_inv.placement import Placement
from flowjax_inv.transforms import Affine, Crop

PICTURE = jnp.zeros((1, 64, 64, 3))
TRANSFORM = Crop(centre="picture", align_corners=False)
# Four crops of half the picture and the whole of it, from the 4x3 images of the laws.
FEW: dict[str, Any] = {"dim": 4, "levels": (1, -1), "sizes": (0.5, 1.0)}


def lrp(**fields: Any) -> InstaAugLRP:
    return InstaAugLRP(**FEW | fields)


def flow_lrp(**fields: Any) -> FlowLRP:
    few: dict[str, Any] = {"layers": 2, "width": 8, "start_scale": 0.5, "components": 1}
    all_fields: dict[str, Any] = FEW | few | {"embed": Pixels()} | fields
    return FlowLRP(**all_fields)


def fresh(module: Any, images: jax.Array = PICTURE) -> Any:
    return module.init_with_output(jax.random.key(0), images)[0]


@pytest.fixture(scope="module")
def at_64() -> Any:
    """The variables of the levels [2, 3, -1] for 64x64 images."""
    return InstaAugLRP(dim=4).init(jax.random.key(0), PICTURE)


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
    variables = module.init(jax.random.key(0), PICTURE)
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

    density: Any = case("", lrp(gradient=gradient)).density()
    np.testing.assert_allclose(density.probs.sum(-1), 1.0, rtol=1e-5)
    theta, log_prob = density.sample_and_log_prob(seed=jax.random.key(3), sample_shape=(20_000,))
    hit = np.asarray((theta[..., None, :] == density.atoms).all(-1))
    assert (hit.sum(-1) == 1).all(), "a sample is exactly one crop"
    for image in range(3):
        expected = 20_000 * np.asarray(density.probs[image], np.float64)
        expected *= 20_000 / expected.sum()
        assert expected.min() > 5
        assert stats.chisquare(hit[:, image].sum(0), expected).pvalue > 1e-4
    np.testing.assert_allclose(density.log_prob(theta), log_prob, rtol=1e-6)
    np.testing.assert_allclose(jnp.exp(log_prob), (hit * density.probs).sum(-1), rtol=1e-5)


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


def h(theta: jax.Array) -> jax.Array:
    return jnp.sum(jnp.sin(2.0 * theta + 0.3) + theta**2, axis=-1)


ALPHA = 0.7


def gradient_is_that_of_exact_sums(
    chosen: Case, exact: Callable[[Any], float], step: float, count: int
) -> None:
    """d / d parameters of E[h] + alpha E[regularizer] along one direction, as the step has it."""
    module, variables = chosen.module, chosen.variables
    leaves, tree = jax.tree.flatten(variables["params"])
    keys = jax.random.split(jax.random.key(11), len(leaves))
    noise = [0.3 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]

    def moved(t: jax.Array | float) -> Any:
        params = [x + t * d for x, d in zip(leaves, noise, strict=True)]
        return {**variables, "params": jax.tree.unflatten(tree, params)}

    expected = (exact(moved(step)) - exact(moved(-step))) / (2 * step)

    @jax.jit
    def by_samples(key: jax.Array) -> jax.Array:
        def value(t: jax.Array) -> jax.Array:
            density: Any = chosen.density(variables=moved(t))
            theta, log_prob = density.sample_and_log_prob(seed=key, sample_shape=(count,))
            score, cost = module.scored(density, theta, log_prob)
            pathwise = jnp.mean(h(theta)) + ALPHA * module.regularizer(density, log_prob)
            return pathwise + score_function_term(h(theta) + ALPHA * cost, score)

        return jax.jvp(value, (0.0,), (1.0,))[1]

    draws = np.array([by_samples(jax.random.key(s)) for s in range(16)])
    error = draws.std(ddof=1) / np.sqrt(len(draws))
    assert error < 0.1 * abs(expected), "too noisy to tell"
    assert abs(draws.mean() - expected) < 4 * error + 0.01 * abs(expected), (
        f"samples {draws.mean():.4f} +- {error:.4f}, exact {expected:.4f}"
    )


@pytest.mark.slow
def test_the_score_functions_gradient_is_that_of_the_sum() -> None:
    chosen = case("", lrp())

    def exact(variables: Any) -> float:
        density: Any = chosen.density(variables=variables)
        p = np.asarray(density.probs, np.float64)
        return float(np.mean(p @ np.asarray(h(density.atoms)) + ALPHA * (p * np.log(p)).sum(-1)))

    gradient_is_that_of_exact_sums(chosen, exact, 0.005, 4_000)


# --- the flow with LRP ---

NODES, SPAN = 16, 3.6


def quadrature(density: Any) -> tuple[jax.Array, np.ndarray]:
    """Return theta (K n^4, 1, 4), nodes in every cell, and their weights (K n^4).

    Even steps before the flow's squash u = tanh(s): there the density is smooth to the edge.
    """
    s = np.linspace(-SPAN, SPAN, NODES)
    node, weight = np.tanh(s), 2 * SPAN / (NODES - 1) / np.cosh(s) ** 2
    u = np.stack(np.meshgrid(*[node] * 4, indexing="ij"), -1).reshape(-1, 4)
    w = np.prod(np.stack(np.meshgrid(*[weight] * 4, indexing="ij"), -1).reshape(-1, 4), -1)
    middle, half = (np.asarray(x, np.float64)[:, None] for x in (density.middle, density.half))
    theta = (middle + half * u).reshape(-1, 1, 4)
    return jnp.asarray(theta, jnp.float32), (w * np.prod(half, -1)).reshape(-1)


def exact_by_quadrature(chosen: Case) -> Callable[[Any], tuple[np.ndarray, float]]:
    """Return variables -> (integral of g per image, E[h] + alpha E[log g])."""
    points, weights = quadrature(chosen.density())

    @jax.jit
    def log_prob(variables: Any) -> Any:
        return chosen.density(variables=variables).log_prob(points)

    of_points = np.asarray(h(points), np.float64)

    def both(variables: Any) -> tuple[np.ndarray, float]:
        log_g = np.asarray(log_prob(variables), np.float64)
        mass = np.exp(log_g) * weights[:, None]
        log_g = np.where(mass > 0, log_g, 0.0)
        return mass.sum(0), float((mass * (of_points + ALPHA * log_g)).sum(0).mean())

    return both


@pytest.fixture(scope="module", params=["picture", "room"])
def flow_case(request: pytest.FixtureRequest) -> Case:
    return case(request.param, flow_lrp(centre=request.param))


@pytest.mark.slow
def test_the_flows_density_integrates_to_one(flow_case: Case) -> None:
    total, _ = exact_by_quadrature(flow_case)(flow_case.variables)
    np.testing.assert_allclose(total, 1.0, atol=0.003)


@pytest.mark.slow
def test_samples_lie_in_the_cell_of_their_crop(flow_case: Case) -> None:
    """Cells are as often hit as their masses say, and log_prob finds the crop that was drawn."""
    from scipy import stats

    density: Any = flow_case.density()
    theta, log_prob = density.sample_and_log_prob(seed=jax.random.key(3), sample_shape=(4_000,))
    offset = np.abs(theta[..., None, :] - density.middle) / density.half
    inside = (offset <= 1).all(-1)
    assert (inside.sum(-1) == 1).all()
    for image in range(3):
        expected = 4_000 * np.asarray(density.crops.probs[image], np.float64)
        expected *= 4_000 / expected.sum()
        assert stats.chisquare(inside[:, image].sum(0), expected).pvalue > 1e-4
    np.testing.assert_allclose(density.log_prob(theta), log_prob, atol=5e-3)
    np.testing.assert_allclose(
        jnp.exp(density.log_mass(theta)), (inside * density.crops.probs).sum(-1), rtol=1e-5
    )
    sizes = Crop(centre=flow_case.name).boxes(theta)[..., 2:]
    assert sizes.min() >= 0.25
    assert sizes.max() <= 1


@pytest.mark.slow
def test_offsets_are_given_the_crop_and_the_image(flow_case: Case) -> None:
    """At the middle of cells of one volume, log density differs between crops and images."""
    density: Any = flow_case.density()
    offsets = density.log_prob(density.middle[:4, None]) - density.crops.log_mass.T[:4]
    assert float(jnp.std(offsets, axis=0).min()) > 1e-2
    assert float(jnp.std(offsets, axis=1).min()) > 1e-2


FLOW_LAWS = (
    laws.log_prob_agrees_with_samples,
    laws.nothing_outside_the_box,
    laws.finite_at_the_edge_and_for_extreme_embeddings,
    laws.rows_are_independent,
    laws.a_key_per_row_is_that_rows_alone,
    laws.entropy_is_at_most_the_log_volume,
)


@pytest.mark.slow
@pytest.mark.parametrize("law", FLOW_LAWS, ids=lambda law: law.__name__)
def test_law(flow_case: Case, law: Callable[[Case], None]) -> None:
    law(flow_case)


@pytest.mark.slow
def test_spline_offsets_and_gaps_without_density() -> None:
    """The other family serves too; no cell has the width of one level and the height of another."""
    chosen = case("", flow_lrp(bijection="spline", base="unit_box", bins=4, centre="room"))
    density: Any = chosen.density()
    theta, log_prob = density.sample_and_log_prob(seed=jax.random.key(3), sample_shape=(200,))
    np.testing.assert_allclose(density.log_prob(theta), log_prob, atol=5e-3)
    mixed = theta.at[..., 2].set(-0.9).at[..., 3].set(0.9)
    assert density.log_prob(mixed).max() == -np.inf


@pytest.mark.slow
def test_cells_reach_half_a_step_and_half_a_gap() -> None:
    module = FlowLRP(dim=4, embed=Pixels(), layers=1, components=1)
    density = fresh(module)
    low, high = (TRANSFORM.boxes(density.middle + s * density.half) for s in (-1, 1))
    # Level 2 at the corner: step 1/8; its size 0.375 reaches down to the smallest, up to 0.5625.
    np.testing.assert_allclose(low[0], [-1, -1, 0.25, 0.25], atol=1e-5)
    np.testing.assert_allclose(high[0], [-0.875, -0.875, 0.5625, 0.5625], atol=1e-5)
    np.testing.assert_allclose(low[256], [-1, -1, 0.5625, 0.5625], atol=1e-5)
    np.testing.assert_allclose(high[256], [-0.75, -0.75, 0.875, 0.875], atol=1e-5)
    # The whole picture moves as far as the units of the last map do.
    np.testing.assert_allclose(low[320], [-0.125, -0.125, 0.875, 0.875], atol=1e-5)
    np.testing.assert_allclose(high[320], [0.125, 0.125, 1, 1], atol=1e-5)


@pytest.mark.slow
def test_the_mixed_gradient_is_that_of_exact_sums() -> None:
    """The crop by the score function of its mass alone, the offset through the samples."""
    chosen = case("", flow_lrp())
    both = exact_by_quadrature(chosen)
    gradient_is_that_of_exact_sums(chosen, lambda v: both(v)[1], 0.005, 4_000)


# --- in the step ---

STEP_IMAGES = jax.random.randint(jax.random.key(0), (8, 16, 16, 1), 0, 256).astype(jnp.uint8)
ONE = Placement(jax.devices()[:1])  # of the four simulated devices


def build(distribution: Any, classifier: nn.Module, rate: float = 1e-2, **fields: Any) -> Any:
    optimizer, controller = optax.adam(rate), Constant(0.1)
    state = training.init_state(
        classifier, distribution, optimizer, controller, STEP_IMAGES[:2], key=jax.random.key(1)
    )
    parts = (classifier, distribution, TRANSFORM, optimizer, controller)
    return ONE.replicate(state), training.make_step(*parts, Objective(**fields), placement=ONE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        pytest.param(lrp(), id="score"),
        pytest.param(lrp(gradient="gumbel_softmax"), id="gumbel"),
        pytest.param(flow_lrp(), id="flow"),
    ],
)
def test_a_step_moves_every_head(module: Any) -> None:
    state, step = build(module, MLP(3, hidden=(8,)), copies=2)
    before = jax.tree.map(jnp.copy, state)
    after = step(state, STEP_IMAGES, jnp.arange(8) % 3, np.arange(8))
    for old, new in (
        (before.params["distribution"], after.params["distribution"]),
        (before.batch_stats["distribution"], after.batch_stats["distribution"]),
    ):
        heads = [key for key in old if key.startswith(("head", "block0_norm"))]
        for key in heads:
            moved = jax.tree.map(lambda a, b: bool((a != b).any()), old[key], new[key])
            assert all(jax.tree.leaves(moved)), key
    assert np.isfinite(float(after.totals["loss"]))


@pytest.mark.slow
def test_only_samples_without_gradient_want_a_loss_per_view() -> None:
    with pytest.raises(ValueError, match='average is "logits"; InstaAugLRP has no gradient'):
        build(lrp(), MLP(3, hidden=(8,)), average="logits")
    build(lrp(gradient="gumbel_softmax"), MLP(3, hidden=(8,)), average="logits")


class Brightness(nn.Module):
    """Class 0 as far as the picture is bright."""

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
        del train
        mean = 8.0 * jnp.mean(images, (1, 2, 3)) - 2.0
        return jnp.stack([mean, jnp.zeros_like(mean)], -1)


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["score", "gumbel_softmax"])
def test_the_bright_quarter_is_found(gradient: str) -> None:
    """A frozen classifier sees brightness: crops inside the bright quarter must win."""
    images = jnp.zeros((64, 16, 16, 1), jnp.uint8).at[:, :8, 8:].set(255)
    fields: Any = {"levels": (2, 3, -1), "sizes": (0.25, 0.5, 1.0), "gradient": gradient}
    module = InstaAugLRP(dim=4, temperature=0.5, **fields)
    state, step = build(module, Brightness(), 2e-2, include_original=False, copies=4)
    for _ in range(100):
        state = step(state, images, jnp.zeros(64, jnp.int32), np.arange(64))
    variables = {
        "params": state.params["distribution"],
        "batch_stats": state.batch_stats["distribution"],
    }
    density: Any = module.apply(variables, images[:1].astype(jnp.float32) / 255)
    boxes = TRANSFORM.boxes(density.atoms)
    right, up = boxes[:, 0] - boxes[:, 2], -boxes[:, 1] - boxes[:, 3]
    inside = (right > -1e-5) & (up > -1e-5)
    assert int(inside.sum()) == 4 + 1  # of 21
    # From 0.04; straight-through, which moves centres and sizes by themselves, gets less far.
    assert float(density.probs[0] @ inside) > {"score": 0.8, "gumbel_softmax": 0.25}[gradient]


# --- refusals ---

ROTATION = Affine("rotation_translation")
REFUSALS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: InstaAugLRP(dim=1, names=Affine("rotation").names),
        r"InstaAugLRP got a transform with dim 1, coordinates \(rotation\); .*take the transform c",
    ),
    (lambda: flow_lrp(dim=3, names=ROTATION.names), r"FlowLRP got a transform with dim 3"),
    (lambda: lrp(names=tuple("abcd")), r"dim 4, coordinates \(a, b, c, d\); it scores crops alone"),
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
