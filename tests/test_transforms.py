"""Every transform of the list obeys every law; what is particular to one stands below."""

import inspect

import jax
import jax.numpy as jnp
import laws_transforms as laws
import numpy as np
import pytest

from experiments.setup import build
from flowjax_inv.transforms import (
    Affine,
    Chain,
    Colour,
    Crop,
    Decoupled,
    Gains,
    Light,
    Points,
    Transform,
)
from flowjax_inv.transforms.matrices import exp, log

# A new transform: one line here.
TRANSFORMS = [
    Affine("rotation"),
    Affine("rotation", half_range=(90.0,), padding="border"),
    Affine("translation", half_range=(0.3, 0.2)),
    Affine("rotation_translation"),
    Affine("rotation_translation", half_range=(0.5, 0.4, 60.0), align_corners=False),
    Affine("scale", half_range=(0.7,)),
    Affine("affine"),
    Affine(basis="scales", half_range=(0.2, 0.3, 60.0, 0.3, 0.4, 0.5), warp="map_coordinates"),
    Decoupled(),
    Decoupled(("a", "e"), half_range=(0.5, 0.4)),
    Decoupled(("f", "c")),
    Decoupled(tuple("abcdef"), half_range=(0.5, 0.6, 0.3, 0.4, 0.5, 0.2), align_corners=False),
    Crop(),
    Crop(min_size=0.3, max_size=0.8, align_corners=False, padding="border"),
    Crop(centre="picture", align_corners=False),
    Colour(colours="grey_world"),
    Colour(colours="all", mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25)),
    Gains(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25)),
    Light(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), half_range=(0.7, 0.5, 0.4)),
    Chain(Affine("rotation_translation"), Colour(colours="all", mean=(0.5,), std=(0.25,))),
]
LAWS = [
    laws.labels_fit,
    laws.identity_is_exact,
    laws.inverse_undoes,
    laws.undo_brings_back,
    laws.compose_is_the_matrix_product,
    laws.compose_is_warping_twice,
    laws.coordinates_undo_matrix,
    laws.periodic_exactly_where_said,
    laws.commutative_exactly_if_so,
    laws.gradients_are_finite_and_right,
    laws.leading_axes_broadcast,
    laws.jit_and_vmap_agree,
]


def label(transform: Transform) -> str:
    if isinstance(transform, Chain):
        return f"{label(transform.spatial)}-{label(transform.colour)}"
    name = getattr(transform, "subgroup", "".join(getattr(transform, "entries", "")))
    name = getattr(transform, "colours", name)
    return f"{type(transform).__name__}-{name}"


def test_every_transform_is_under_the_laws():
    """But for points, which are no pictures: test_points has theirs."""
    tested = {type(transform) for transform in TRANSFORMS} | {Points}
    assert {*build.TRANSFORMS.values(), Chain, Gains, Light} == tested


def test_every_law_is_listed():
    found = [f for _, f in inspect.getmembers(laws, inspect.isfunction) if f.__doc__ is None]
    written = {f for f in found if list(inspect.signature(f).parameters) == ["transform"]}
    assert written == set(LAWS)


# Of the classes the first, for the fast loop.
FAST = (Affine("affine"), Decoupled(("f", "c")), Crop(), Colour(colours="grey_world"))


@pytest.mark.parametrize(
    "transform",
    [pytest.param(t, marks=() if t in FAST else pytest.mark.slow) for t in TRANSFORMS],
    ids=label,
)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law, transform):
    law(transform)


def test_flags():
    assert Affine("rotation").periodic == (True,)
    assert Affine("rotation_translation").periodic == (False, False, True)
    assert Affine("rotation", half_range=(90,)).periodic == (False,)
    assert not any(Affine("affine").periodic)
    assert Affine("affine").names[3:] == ("scale", "stretch", "shear")
    assert Affine(basis="scales").names[3:] == ("scale_x", "scale_y", "shear")
    assert Affine("rotation_translation").units == ("half-widths", "half-heights", "degrees")
    assert not Decoupled().closed


def test_positive_rotation_turns_the_arrow_counter_clockwise():
    up = np.zeros((5, 5, 1), np.float32)
    up[0:4, 2] = 1.0
    up[1, 1:4] = 1.0  # an arrow that points up
    left = np.rot90(up)
    for transform in (Affine("rotation"), Affine("rotation", align_corners=False)):
        np.testing.assert_array_equal(transform(up, jnp.array([0.5])), left)
        np.testing.assert_array_equal(transform(up, jnp.array([1.0])), np.rot90(up, 2))
        np.testing.assert_array_equal(transform(up, jnp.array([-0.5])), np.rot90(up, -1))
    exponential = Affine("affine")(up, jnp.array([0, 0, 0.5, 0, 0, 0]))
    np.testing.assert_allclose(exponential, left, atol=1e-5)


def test_positive_translation_moves_the_content_left_and_up_positive_scale_shrinks():
    dot = np.zeros((5, 5, 1), np.float32)
    dot[2, 2] = 1.0
    shift = Affine("translation")
    assert float(shift(dot, jnp.array([0.5, 0.0]))[2, 1, 0]) == 1.0
    assert float(shift(dot, jnp.array([0.0, 0.5]))[1, 2, 0]) == 1.0
    matrix = Affine("affine").matrix(jnp.array([0, 0, 0, 0.5, 0, 0]))
    np.testing.assert_allclose(matrix, np.diag([np.exp(0.5), np.exp(0.5), 1.0]), rtol=1e-6)


@pytest.mark.slow
def test_coordinates_move_the_matrix_by_the_generators_of_the_paper():
    # d matrix / d theta at 0 is G times the half-range (radians for the rotation), by rows.
    turn = [0, -np.pi / 2, 0, np.pi / 2, 0, 0]
    shifts, shear = [[0, 0, 0.2, 0, 0, 0], [0, 0, 0, 0, 0, 0.3]], [0, 0.6, 0, 0.6, 0, 0]
    half_range = (0.2, 0.3, 90.0, 0.4, 0.5, 0.6)
    both, against = [0.4, 0, 0, 0, 0.4, 0], [0.5, 0, 0, 0, -0.5, 0]
    x_only, y_only = [0.4, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0.5, 0]
    for transform, rows in (
        (Affine("affine", half_range=half_range), [*shifts, turn, both, against, shear]),
        (Affine(basis="scales", half_range=half_range), [*shifts, turn, x_only, y_only, shear]),
        (Affine("rotation_translation", half_range=half_range[:3]), [*shifts, turn]),
        (Affine("translation", half_range=half_range[:2]), shifts),
        (Affine("rotation", half_range=(90.0,)), [turn]),
        (Decoupled(tuple("abcdef")), np.eye(6)),
    ):
        slope = jax.jit(jax.jacfwd(transform.matrix))(jnp.zeros(transform.dim))[:2].reshape(6, -1).T
        np.testing.assert_allclose(slope, rows, atol=1e-6)


@pytest.mark.parametrize("angle", [-1.0, -0.5, 0.0, 0.25, 1.0])
def test_half_turns_of_periodic_coordinates_are_the_same_bit_for_bit(angle):
    transform = Affine("rotation")
    theta = jnp.array([angle])
    np.testing.assert_array_equal(transform.matrix(theta), transform.matrix(theta + 2))


def algebra(scale: float, count: int = 30) -> jax.Array:
    elements = np.random.default_rng(5).normal(size=(count, 3, 3)) * scale
    elements[:, 2] = 0.0
    return jnp.asarray(elements, jnp.float32)


def special() -> jax.Array:
    rows = [
        [[0, 0, 1], [0, 0, 2], [0, 0, 0]],  # only a shift
        [[0, 1, 1], [0, 0, 2], [0, 0, 0]],  # nilpotent: q = 0
        [[2, 1, 1], [0, 2, 2], [0, 0, 0]],  # a double eigenvalue
        [[0, 0, 1], [0, 3, 2], [0, 0, 0]],  # singular A: V(A) has no quotient
        [[1, 1, 1], [1, 1, 2], [0, 0, 0]],
        [[0, -3.1, 1], [3.1, 0, 2], [0, 0, 0]],  # nearly half a turn
        [[-9, 4, 1], [1, -5, 2], [0, 0, 0]],
    ]
    return jnp.array(rows, jnp.float32)


@pytest.mark.slow
def test_exp_is_expm_in_value_and_derivative():
    elements = jnp.concatenate([algebra(0.02), algebra(0.5), algebra(1.5), special()])
    expm = jax.scipy.linalg.expm
    for f, g in ((exp, expm), (jax.vmap(jax.jacfwd(exp)), jax.vmap(jax.jacfwd(expm)))):
        mine, theirs = (np.asarray(jax.jit(h)(elements)) for h in (f, g))
        mine, theirs = mine[:, :2], theirs[:, :2]
        if mine.ndim > 3:  # of the last row nothing is read
            mine, theirs = mine[..., :2, :], theirs[..., :2, :]
        size = np.maximum(1, np.abs(theirs).max(axis=tuple(range(1, theirs.ndim)), keepdims=True))
        np.testing.assert_allclose(mine / size, theirs / size, atol=3e-5)


def test_exp_is_smooth_across_the_cases_of_its_formula():
    # q = +-0.25 is where series and closed form meet.
    q = jnp.linspace(-0.26, 0.26, 2001)

    def entry(q):
        return exp(jnp.array([[0, q, 0.3], [1, 0, 0.2], [0, 0, 0.0]]))[:2]

    slopes = jax.jit(jax.vmap(jax.jacfwd(entry)))(q)
    assert float(jnp.max(jnp.abs(jnp.diff(slopes, axis=0)))) < 1e-4


def test_exp_of_large_elements_is_right_where_it_is_finite():
    element = jnp.diag(jnp.array([-200.0, 1.0, 0.0]))
    np.testing.assert_allclose(exp(element), np.diag([0, np.e, 1]), rtol=1e-5, atol=1e-6)
    turns = exp(jnp.array([[0.0, -200 * np.pi, 0], [200 * np.pi, 0, 0], [0, 0, 0]]))
    np.testing.assert_allclose(turns, np.eye(3), atol=1e-3)


@pytest.mark.slow
def test_log_undoes_exp_and_exp_undoes_log():
    elements = jnp.concatenate([algebra(0.02), algebra(0.5), special()[:6]])
    b = elements[:, 0, 1] * elements[:, 1, 0]
    q = (elements[:, 0, 0] - elements[:, 1, 1]) ** 2 / 4 + b
    assert float(jnp.min(q)) > -(np.pi**2)  # all are principal
    np.testing.assert_allclose(jax.jit(log)(exp(elements)), elements, atol=2e-3)
    matrices = jnp.eye(3) + algebra(0.3)
    there = jax.jit(lambda m: exp(log(m)))(matrices)
    ok = np.isfinite(np.asarray(there)).all(axis=(1, 2))
    eigenvalues = np.linalg.eigvals(np.asarray(matrices)[:, :2, :2])
    refused = ((np.abs(eigenvalues.imag) < 1e-6) & (eigenvalues.real <= 0)).any(axis=1)
    np.testing.assert_array_equal(ok, ~refused)
    np.testing.assert_allclose(there[ok], matrices[ok], atol=1e-4)


@pytest.mark.parametrize("stretch", [100.0, 5_000.0])
def test_log_of_a_great_stretch_along_one_axis(stretch: float):
    got = log(jnp.diag(jnp.array([stretch, 1 / stretch, 1.0])))
    np.testing.assert_allclose(jnp.diag(got), np.log([stretch, 1 / stretch, 1.0]), rtol=1e-5)


def test_log_is_nan_where_there_is_none():
    for diagonal in ([-1.0, 1.0, 1.0], [-1.0, -2.0, 1.0], [0.0, 1.0, 1.0], [-1.0, -1.0, 1.0]):
        assert bool(jnp.any(jnp.isnan(log(jnp.diag(jnp.array(diagonal))))))


@pytest.mark.slow
def test_derivatives_of_log_are_finite_at_the_identity_and_for_equal_eigenvalues():
    for element in (jnp.zeros((3, 3)), special()[1], special()[2]):
        jacobian = jax.jacrev(lambda e: log(exp(e))[:2])(element)[..., :2, :]
        np.testing.assert_allclose(jacobian.reshape(6, 6), np.eye(6), atol=1e-3)


def test_crops_of_the_box_are_inside_the_picture():
    transform = Crop(min_size=0.3, max_size=0.9)
    theta = jnp.concatenate([laws.thetas(transform, 50, 1.0), jnp.ones((1, 4)), -jnp.ones((1, 4))])
    boxes = np.asarray(transform.boxes(theta))
    assert np.all(np.abs(boxes[:, :2]) + boxes[:, 2:] <= 1 + 1e-6)
    assert boxes[:, 2:].min() >= 0.3 - 1e-6
    assert boxes[:, 2:].max() <= 0.9 + 1e-6
    assert bool(jnp.all(transform.valid_mask(theta, 9, 13)))
    np.testing.assert_allclose(transform.boxes(jnp.zeros(4)), [0, 0, 0.6, 0.6], rtol=1e-6)
    assert bool(jnp.all(jnp.abs(Crop().identity) <= 1))
    assert bool(jnp.any(jnp.abs(transform.identity) > 1))


def test_centres_in_the_picture_do_not_hang_on_the_size():
    theta = jnp.array([[0.5, -0.9, -1.0, 0.0], [0.5, -0.9, 1.0, 1.0], [-1.0, 1.0, 0.0, 0.0]])
    transform = Crop(min_size=0.2, max_size=1.0, centre="picture")
    expected = [[0.5, -0.9, 0.2, 0.6], [0.5, -0.9, 1.0, 1.0], [-1.0, 1.0, 0.6, 0.6]]
    np.testing.assert_allclose(transform.boxes(theta), expected, rtol=1e-6)
    assert not bool(jnp.all(transform.valid_mask(theta[1], 9, 13)))  # it may leave the picture
    assert transform.units[:2] == ("half-widths", "half-heights")
    assert Crop().units[:2] == ("room left", "room left")


def test_a_pure_translation_is_a_crop_where_the_centre_is_free():
    shift = jnp.eye(3).at[0, 2].set(0.3)
    assert bool(jnp.isnan(Crop().coordinates(shift)[0]))
    np.testing.assert_allclose(Crop(centre="picture").coordinates(shift), [0.3, 0, 1, 1], atol=1e-6)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Affine("similarity"), r"subgroup='similarity'.*did you mean one of affine, trans"),
        (lambda: Affine(basis="lie"), r"basis='lie'.*did you mean one of augerino, scales"),
        (lambda: Affine("rotation", half_range=(1.0, 2.0)), r"\(rotation\) wants 1 positive"),
        (lambda: Affine("translation", half_range=(1.0, 0.0)), r"wants 2 positive"),
        (lambda: Affine("rotation", half_range=(float("nan"),)), r"half_range=\(nan,\)"),
        (lambda: Affine("rotation", half_range=(float("inf"),)), r"half_range=\(inf,\)"),
        (
            lambda: Affine("rotation", warp="nearest"),
            r"warp='nearest'.*auto, gather, flat, native, map_coordinates",
        ),
        (lambda: Affine("rotation", padding="wrap"), r"padding='wrap'.*zeros, border"),
        (lambda: Crop(padding="wrap"), r"padding='wrap'.*zeros, border"),
        (lambda: Decoupled(("b", "g")), r"entry='g'.*a, b, c, d, e, f"),
        (lambda: Decoupled(("b", "b")), r"each once"),
        (lambda: Decoupled(()), r"one or more of a to f"),
        (lambda: Decoupled(half_range=(1.0,)), r"Decoupled with coordinates \(b, d\) wants 2"),
        (lambda: Crop(min_size=0.0), r"0 < min_size < max_size <= 1"),
        (lambda: Crop(min_size=0.7, max_size=0.7), r"0 < min_size < max_size <= 1"),
        (lambda: Crop(max_size=1.5), r"0 < min_size < max_size <= 1"),
        (lambda: Crop(centre="middle"), r"centre='middle'.*room, picture"),
        (lambda: Affine("rotation").matrix(0.5), r"theta has shape \(\)"),
        (lambda: exp(jnp.eye(2)), r"matrices have shape \(2, 2\)"),
        (lambda: log(jnp.zeros(3)), r"matrices have shape \(3,\)"),
    ],
)
def test_refusals(make, text):
    with pytest.raises(ValueError, match=text):
        make()
