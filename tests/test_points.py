"""Points in space: how they move, what is predicted of them, and what is learned by it."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.linalg
from steps import ONE, changed, copy

from experiments.setup import assembly, checks, data_sets
from flowjax_inv import training
from flowjax_inv.data.clusters import clusters, dipoles, energies
from flowjax_inv.data.molecules import KINDS, molecules
from flowjax_inv.data.sets import DataSet, Split
from flowjax_inv.distributions.box import Augerino, Fixed
from flowjax_inv.inference import view_values
from flowjax_inv.networks import PairNet
from flowjax_inv.training.controllers import Constant
from flowjax_inv.training.costs import view_absolute_error
from flowjax_inv.training.objectives import Objective
from flowjax_inv.transforms import Affine, Points

SUBGROUPS = ("affine", "linear", "rigid", "rotation", "translation")
TURNS = Points("rotation")


def thetas(transform: Points, count: int = 6, reach: float = 0.9) -> jax.Array:
    shape = count, transform.dim
    return jax.random.uniform(jax.random.key(1), shape, minval=-reach, maxval=reach)


def clouds(count: int = 6, points: int = 5) -> jax.Array:
    """Clouds of two kinds of points; the last point is not there."""
    position = jax.random.normal(jax.random.key(2), (count, points, 3))
    kinds = jax.nn.one_hot(jnp.arange(points) % 2, 2).at[-1].set(0.0)
    return jnp.concatenate([position, jnp.broadcast_to(kinds, (count, points, 2))], axis=-1)


@pytest.mark.parametrize("subgroup", SUBGROUPS)
def test_matrices_are_exponentials_and_inverses_undo_them(subgroup: Any) -> None:
    transform = Points(subgroup)
    for labels in (transform.units, transform.half_range, transform.periodic):
        assert len(labels) == transform.dim == len(set(transform.names))
    theta = thetas(transform)
    matrix = np.asarray(transform.matrix(theta))
    algebra = np.tensordot(np.asarray(theta), transform._generators(), axes=1)
    expected = np.stack([scipy.linalg.expm(each) for each in algebra])
    np.testing.assert_allclose(matrix, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(matrix[:, 3], np.tile([0, 0, 0, 1], (6, 1)))
    back = np.asarray(transform.matrix(transform.inverse(theta)))
    np.testing.assert_allclose(back @ matrix, np.tile(np.eye(4), (6, 1, 1)), atol=1e-3)
    if subgroup == "rotation":
        linear = matrix[:, :3, :3]
        np.testing.assert_allclose(
            linear @ linear.swapaxes(1, 2), np.tile(np.eye(3), (6, 1, 1)), atol=1e-5
        )
        np.testing.assert_allclose(np.linalg.det(linear), 1.0, atol=1e-5)


def test_turns_are_right_handed_and_by_degrees() -> None:
    """A quarter turn about z brings x to y; one about x, y to z."""
    for axis, first, then in ((2, 0, 1), (0, 1, 2), (1, 2, 0)):
        theta = jnp.zeros(3).at[axis].set(0.5)
        moved = TURNS(jnp.eye(3)[None, first], theta)
        np.testing.assert_allclose(moved[0], jnp.eye(3)[then], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("subgroup", ["rotation", "translation"])
def test_coordinates_undo_matrices_and_two_in_a_row_are_one(subgroup: Any) -> None:
    transform = Points(subgroup)
    theta = thetas(transform, 12, reach=0.55)  # within half a turn, whatever the axis
    found = transform.coordinates(transform.matrix(theta))
    np.testing.assert_allclose(found, theta, atol=1e-5)
    a, b = theta[:6], theta[6:]
    once = transform(clouds(), transform.compose(a, b))
    twice = transform(transform(clouds(), b), a)
    np.testing.assert_allclose(once, twice, atol=1e-5)
    if subgroup == "rotation":  # half a turn itself, about any axis; and none
        for axis in np.eye(3):
            half = transform.matrix(jnp.asarray(axis))
            np.testing.assert_allclose(np.abs(transform.coordinates(half)), axis, atol=1e-5)
        np.testing.assert_array_equal(transform.coordinates(jnp.eye(4)), jnp.zeros(3))
        assert np.abs(transform(clouds(), transform.compose(b, a)) - twice).max() > 0.1


@pytest.mark.slow
def test_what_is_no_point_and_what_is_no_position_stays() -> None:
    transform = Points("affine")
    start, theta = clouds(), thetas(Points("affine"))
    moved = transform(start, theta)
    np.testing.assert_array_equal(moved[..., 3:], start[..., 3:])
    np.testing.assert_array_equal(moved[:, -1], start[:, -1])
    assert (jnp.abs(moved - start)[:, :-1, :3].max(-1) > 0).all()
    np.testing.assert_array_equal(transform(start, transform.identity), start)
    # Of positions alone all are points; copies are an axis before the clouds.
    copies = transform(start[..., :3], jnp.stack([theta, -theta]))
    assert copies.shape == (2, 6, 5, 3)
    np.testing.assert_allclose(copies[0, :, :-1], moved[:, :-1, :3], atol=1e-5)
    slope = jax.jacobian(lambda t: transform(start, t))(jnp.zeros((6, 12)))
    assert jnp.isfinite(slope).all()


def test_what_does_not_move_points_is_refused() -> None:
    refused: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "subgroup='scale' is unknown", lambda: Points("scale")),
        (ValueError, "wants 3 positive number", lambda: Points("rotation", half_range=(1.0,))),
        (TypeError, "clouds are int32; positions are floats",
         lambda: TURNS(jnp.zeros((1, 2, 3), int), jnp.zeros(3))),
        (ValueError, r"shape \(2, 2\); want \(\.\.\., P, 3 \+ K\)",
         lambda: TURNS(jnp.zeros((2, 2)), jnp.zeros(3))),
        (ValueError, '"affine" have no coordinates here',
         lambda: Points("affine").coordinates(jnp.eye(4))),
        (ValueError, "not closed", lambda: Points("rigid").compose(jnp.zeros(6), jnp.zeros(6))),
        (ValueError, r"PairNet wants \(N, P, 3 \+ K\)",
         lambda: PairNet(1).init(jax.random.key(0), jnp.zeros((1, 2)))),
    ]  # fmt: skip
    for kind, words, call in refused:
        with pytest.raises(kind, match=words):
            call()


def net(outputs: int) -> Any:
    """A network of random weights, whose answers turn along with nothing."""
    network = PairNet(outputs, width=8)
    params = network.init(jax.random.key(3), clouds())
    return lambda x: network.apply(params, x)


def test_the_order_of_points_does_not_matter_nor_do_points_that_are_not_there() -> None:
    predict, start = net(2), clouds()
    np.testing.assert_allclose(predict(start[:, ::-1]), predict(start), atol=1e-5)
    elsewhere = start.at[:, -1, :3].add(5.0)
    np.testing.assert_allclose(predict(elsewhere), predict(start), atol=1e-5)
    assert jnp.abs(predict(TURNS(start, thetas(TURNS))) - predict(start)).max() > 0.01


@pytest.mark.slow
def test_a_mean_over_a_group_turns_with_the_cloud_whatever_the_network() -> None:
    """Over the quarter turns about z, each brought back; of one view it does not."""
    quarters = jnp.zeros((4, 1, 3)).at[:, 0, 2].set(jnp.array([0.0, 0.5, 1.0, -0.5]))
    predict = net(3)

    def answer(x: jax.Array, theta: jax.Array) -> jax.Array:
        theta = jnp.broadcast_to(theta, (len(theta), len(x), 3))
        values = predict(TURNS(x, theta).reshape(-1, *x.shape[1:])).reshape(len(theta), len(x), 3)
        return TURNS.undo_vectors(values, theta).mean(0)

    turn = jnp.broadcast_to(quarters[1], (6, 3))
    matrix = TURNS.matrix(quarters[1, 0])[:3, :3]
    for views, same in ((quarters, True), (quarters[:1], False)):
        gap = answer(TURNS(clouds(), turn), views) - answer(clouds(), views) @ matrix.T
        assert (float(jnp.abs(gap).max()) < 1e-4) == same


def test_values_of_views_come_back_and_are_averaged() -> None:
    start, density = clouds(), Fixed(dim=3)

    def propose(x: jax.Array) -> Any:
        return density.apply({}, x)

    def positive(x: jax.Array) -> jax.Array:  # a vector that turns along by itself
        return jnp.sum(x[..., :3] * x[..., 3:4], axis=1)

    given: dict[str, Any] = {"key": jax.random.key(0), "num_samples": 3}
    views = view_values(positive, propose, TURNS, start, vectors=True, **given)
    np.testing.assert_allclose(views, jnp.broadcast_to(positive(start), (3, 6, 3)), atol=1e-4)
    there = view_values(positive, propose, TURNS, start, **given)
    assert jnp.abs(there - positive(start)).max() > 0.1  # not brought back
    with pytest.raises(ValueError, match="num_samples is 0"):
        view_values(positive, propose, TURNS, start, key=given["key"], num_samples=0)
    with pytest.raises(ValueError, match=r"made \(18,\) of .*; want one row of values"):
        view_values(lambda x: x[:, 0, 0], propose, TURNS, start, **given)
    flat = Affine("rotation")
    with pytest.raises(ValueError, match=r"vectors is True, but Affine\(rotation\) turns no vect"):
        view_values(positive, propose, flat, start, vectors=True, **given)
    with pytest.raises(NotImplementedError):
        flat.undo_vectors(jnp.zeros(3), jnp.zeros(1))


def test_energies_do_not_turn_and_dipoles_do() -> None:
    data = clusters(value="energy", train_size=40, test_size=10, seed=0)
    start = data.train.images
    assert start.shape == (40, 8, 5)
    assert set(np.count_nonzero(start[..., 3:].sum(-1), axis=1)) == {4, 6, 8}

    def of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        charges = x[..., 3] - x[..., 4]
        return energies(x[..., :3], charges), dipoles(x[..., :3], charges)

    energy, dipole = of(start)
    spread = (energy - energy.mean()) / energy.std()
    assert data.train.values is not None
    np.testing.assert_allclose(data.train.values, spread[:, None], rtol=1e-4, atol=1e-4)
    moves = Points("rigid")
    theta = thetas(moves, 40)
    turned = of(np.asarray(moves(start, theta)))
    linear = np.asarray(moves.matrix(theta))[:, :3, :3]
    np.testing.assert_allclose(turned[0], energy, atol=1e-3)
    np.testing.assert_allclose(turned[1], np.einsum("nij,nj->ni", linear, dipole), atol=1e-3)
    # Sheared, neither: an energy changes, and a dipole does not follow.
    bends = Points("linear")
    theta = jnp.zeros((40, 9)).at[:, 5].set(0.3)
    bent, linear = of(np.asarray(bends(start, theta))), np.asarray(bends.matrix(theta))[:, :3, :3]
    assert np.abs(bent[0] - energy).mean() > 0.05
    assert np.abs(bent[1] - np.einsum("nij,nj->ni", linear, dipole)).mean() > 0.02
    both = [clusters(value="dipole", train_size=9, test_size=1, seed=1) for _ in range(2)]
    np.testing.assert_array_equal(both[0].train.values, both[1].train.values)
    assert both[0].train.values is not None
    assert np.sqrt(np.mean(both[0].train.values ** 2)) == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(ValueError, match="train_size=0, test_size=1; want at least 1 of each"):
        clusters(value="energy", train_size=0, test_size=1, seed=0)


def test_molecules_of_the_package() -> None:
    pytest.importorskip("ase")
    data = molecules(train_size=12, test_size=6, seed=0)
    for split in (data.train, data.test):
        assert split.images.shape[1:] == (14, 3 + len(KINDS))
        there = np.any(split.images[..., 3:] != 0, axis=-1)
        assert there.sum(1).min() >= 2
        middle = (split.images[..., :3] * there[..., None]).sum(1)
        np.testing.assert_allclose(middle, 0.0, atol=1e-4)
    with pytest.raises(ValueError, match="test_size=0; want at least 1"):
        molecules(train_size=1, test_size=0, seed=0)


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ValueError, match=r"package ase, which is not here; pip install"):
        molecules(train_size=1, test_size=1, seed=0)


def test_absolute_errors_of_views() -> None:
    outputs = jax.random.normal(jax.random.key(0), (3, 4, 2))
    values = jnp.ones((4, 2))
    expected = np.abs(np.asarray(outputs) - 1).mean((0, 2))
    np.testing.assert_allclose(view_absolute_error(outputs, values, "losses"), expected, rtol=1e-5)
    of_mean = np.abs(np.asarray(outputs).mean(0) - 1).mean(-1)
    np.testing.assert_allclose(view_absolute_error(outputs, values, "logits"), of_mean, rtol=1e-5)
    with pytest.raises(ValueError, match="an absolute error allows: losses, logits"):
        view_absolute_error(outputs, values, "probs")
    with pytest.raises(ValueError, match=r"wants \(n, N, m\) for \(N, m\)"):
        view_absolute_error(outputs, values[:, :1], "losses")
    with pytest.raises(ValueError, match="vectors want absolute_error"):
        Objective(vectors=True)
    with pytest.raises(ValueError, match="vectors is True, but Affine.* turns no vectors of space"):
        training.check_objective(
            Augerino(dim=1), Affine("rotation"), Objective(loss="absolute_error", vectors=True)
        )


@pytest.mark.slow
def test_a_step_brings_vectors_back_before_it_judges_them() -> None:
    """Of a network whose answers turn along, views cost what the originals do."""

    class Centre(PairNet):
        def __call__(self, images: jax.Array, *, train: bool = False) -> jax.Array:
            del train
            return jnp.sum(images[..., :3] * images[..., 3:4], axis=1)

    start = np.asarray(clouds(24))
    density, objective = Augerino(dim=3, start_half_range=(0.4,)), Objective(
        loss="absolute_error", vectors=True, copies=2
    )  # fmt: skip
    values = np.ones((24, 3), np.float32)
    for network, same in ((Centre(3), True), (PairNet(3, width=4), False)):
        parts = (network, density, TURNS, optax.adam(1e-2), Constant(0.1), objective)
        state = training.init_state(
            *parts[:2], *parts[3:5], start[:4], key=jax.random.key(1), objective=objective
        )
        state = ONE.replicate(state)
        before = copy(state)
        after = training.make_step(*parts, placement=ONE)(state, start, values, jnp.arange(8))
        gap = float(after.totals["absolute_error"] - after.totals["absolute_error_original"])
        assert (abs(gap) < 1e-4) == same
        assert changed(before, after, "distribution")


def test_points_and_pictures_do_not_mix() -> None:
    def config(**fields: Any) -> Any:
        made = importlib.import_module("experiments.molecules").get_config("energy_augerino")
        for name, value in fields.items():
            section, _, field = name.partition("__")
            made[section][field] = value
        return made

    checks.check(config())
    for fields, words in (
        ({"classifier__name": "mlp"}, "points go with transform.name=points, pair_net for both"),
        ({"objective__loss": "cross_entropy"}, "pictures with none of them"),
        ({"distribution__name": "flow", "embedding__name": "mlp"}, "embedding.name=mlp"),
        ({"data__mirror": True}, "points have neither a left side nor a colour"),
        ({"transform__colours": "gains"}, "points have neither a left side nor a colour"),
    ):
        with pytest.raises(ValueError, match=words):
            checks.check(config(**fields))
    with pytest.raises(ValueError, match="vectors=False, which learns 1 value.*there are none"):
        data_sets.targets(config(), Split(np.zeros((1, 2, 3), np.float32), np.zeros(1, int)))
    with pytest.raises(ValueError, match="clusters and molecules go with points, pictures with an"):
        assembly.assemble(config(data__name="mario_iggy"))
    wrong = config(objective__vectors=True)
    made = data_sets.data_set(wrong)
    with pytest.raises(ValueError, match="there are 1 each: take clusters or molecules"):
        data_sets.targets(wrong, made.train)
    split = Split(np.zeros((1, 2, 3)), np.zeros(1, int))
    with pytest.raises(ValueError, match=r"float64 .*; want uint8 \(N, H, W, C\), or points"):
        DataSet(split, split, ("a",))
