"""A wrapped classifier: turned pictures are turned back, upright ones left alone, as promised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from poses import blobs, pose, upright

from flowjax_inv.distributions.bases import UniformBox
from flowjax_inv.inference import gate_score, off_pose_evidence, wrap
from flowjax_inv.transforms import Affine

ROTATION = Affine("rotation")
KEY = jax.random.key(0)
UPRIGHT = blobs(jnp.linspace(-8.0, 8.0, 128))
TURNED = blobs(jnp.array([-170.0, -95.0, 60.0, 120.0, 3.0]))
SHARP = upright(0.02)


def classify(images: jax.Array) -> jax.Array:
    """Class 0: the blob is where it belongs."""
    right = jnp.abs(pose(images)) < 0.1
    return 10.0 * jnp.stack([right, ~right], axis=-1)


def wrapped(classify=classify, propose=SHARP, calibration=UPRIGHT, **fields):
    fields = {"key": KEY, "max_clean_loss": 0.05} | fields
    return wrap(classify, propose, ROTATION, calibration, **fields)


@pytest.mark.slow
@pytest.mark.parametrize("act", ["averaged", "aligned"])
def test_turned_pictures_are_turned_back_and_upright_ones_left_alone(act) -> None:
    answer = wrapped(act=act)(TURNED, key=KEY)
    np.testing.assert_array_equal(answer.prediction, 0)
    assert answer.action.tolist() == [act] * 4 + ["left alone"]
    wanted = np.array([170.0, 95.0, -60.0, -120.0, 0.0])
    np.testing.assert_allclose(180 * answer.theta[:, 0], wanted, atol=4)
    assert (answer.score[:4] > 19).all()
    assert answer.score[4] == -np.inf  # nobody looked further
    np.testing.assert_allclose(answer.calls, 1 + 0.8 * (20 if act == "averaged" else 1))
    assert (np.asarray(classify(TURNED)).argmax(-1) == [1, 1, 1, 1, 0]).all()


@pytest.mark.slow
def test_views_are_averaged_as_asked() -> None:
    """Views turned back right are classified with 0.95, others with 0.5."""

    def unsure(images: jax.Array) -> jax.Array:
        right = jnp.abs(pose(images)) < 0.1
        return 3.0 * jnp.stack([right, jnp.zeros_like(right)], axis=-1)

    evenly, confident = (
        wrapped(unsure, upright(0.3), max_clean_loss=None, average=average)(UPRIGHT, key=KEY)
        for average in ("probs", "confident")
    )
    share = (evenly.probabilities[:, 0] - 0.5) / (jax.nn.sigmoid(3.0) - 0.5)
    weight = share * jax.nn.sigmoid(3.0) ** 4
    weight = weight / (weight + (1 - share) * 0.5**4)
    wanted = 0.5 + weight * (jax.nn.sigmoid(3.0) - 0.5)
    np.testing.assert_allclose(confident.probabilities[:, 0], wanted, atol=1e-5)


@pytest.mark.slow
def test_a_density_that_harms_meets_a_closed_gate() -> None:
    """One that turns all by half a circle: nothing may be acted on."""

    def wrong(images):
        return upright(0.02)(ROTATION(images, jnp.ones((len(images), 1))))

    made = wrapped(propose=wrong)
    assert made.contract is not None
    assert made.contract.gate > 19
    assert set(made(UPRIGHT, key=KEY).action) == {"left alone"}
    everything = wrapped(propose=wrong, max_clean_loss=None)(UPRIGHT, key=KEY)
    assert set(everything.action) == {"averaged"}
    assert (everything.prediction == 1).all()


@pytest.mark.slow
def test_batches_and_their_padding_change_nothing() -> None:
    images = jnp.concatenate([TURNED, UPRIGHT[:6]])
    whole = wrapped(propose=upright(1e-4))(images, key=KEY)
    parts = wrapped(propose=upright(1e-4), batch_size=4)(images, key=KEY)
    np.testing.assert_allclose(whole.probabilities, parts.probabilities, atol=1e-5)
    assert whole.action.tolist() == parts.action.tolist()


@pytest.mark.slow
def test_any_function_will_do() -> None:
    def numpy_only(images):
        assert isinstance(images.__array__(), np.ndarray)
        return np.asarray(classify(jnp.asarray(np.asarray(images))))

    np.testing.assert_array_equal(wrapped(numpy_only)(TURNED, key=KEY).prediction, 0)


@pytest.mark.slow
def test_it_abstains_where_the_classifier_says_nothing() -> None:
    def broken(images):
        """Not finite, by the data, where the blob is more than 3.6 degrees off to the left."""
        return classify(images) + 0.0 * jnp.sqrt(0.02 - pose(images))[:, None]

    with pytest.raises(ValueError, match="not finite for 36 of 128 calibration images; mend it"):
        wrapped(broken)
    made = wrapped(broken, calibration=blobs(jnp.linspace(-8.0, 0.0, 128)))
    answer = made(blobs(jnp.array([0.0, 7.0])), key=KEY)
    assert answer.action.tolist() == ["left alone", "abstained"]
    np.testing.assert_array_equal(answer.prediction, [0, -1])


@pytest.mark.slow
def test_the_evidence_compares_the_likeliest_with_leaving_alone() -> None:
    """A mixture: 1/4 within 18 degrees of upright, 3/4 as wide half a turn away: log 3."""
    wide = UniformBox(jnp.zeros((1, 1)), jnp.full((1, 1), jnp.log(0.2)))

    class Mixture:
        def log_prob(self, theta):
            return jnp.log(jnp.where(jnp.abs(theta[..., 0]) < 0.1, 0.25, 0.75) / 0.2)

    theta = (
        wide.sample(seed=KEY, sample_shape=(100,))
        + jnp.where(jnp.arange(100) < 75, 1.0, 0.0)[:, None, None]
    )
    theta = (theta + 1.0) % 2.0 - 1.0
    fields = {"transform": ROTATION, "radius": 0.1}
    got = off_pose_evidence(Mixture(), theta, Mixture().log_prob(theta), **fields)
    np.testing.assert_allclose(got, np.log(3.0), rtol=1e-5)
    got = off_pose_evidence(Mixture(), theta[75:], Mixture().log_prob(theta[75:]), **fields)
    np.testing.assert_allclose(got, -20.0)  # no sample moves it


def test_the_score_adds_the_confidence_gained_where_there_is_evidence() -> None:
    acted, plain = np.array([[0.8, 0.2]] * 2), np.array([[0.6, 0.4]] * 2)
    got = gate_score(np.array([1.0, -1.0]), acted, plain)
    np.testing.assert_allclose(got, [1.0 + 2 * np.log(0.8 / 0.6), -np.inf])


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"calibration": UPRIGHT[:50]}, ValueError, "50 calibration images cannot show a loss"),
        ({"act": "turned"}, ValueError, "act='turned' is unknown; did you mean one of av"),
        ({"average": "median"}, ValueError, "average='median' is unknown; did you mean one of pr"),
        ({"num_samples": 0}, ValueError, "num_samples=0.*want 1 to 100 samples"),
        ({"radius": 0.0}, ValueError, "radius=0.0; want"),
        ({"calibration": jnp.zeros((300, 9, 9, 1), jnp.uint8)}, TypeError, "uint8; a warp wants"),
        ({"classify": lambda x: x}, ValueError, "want one row of logits for each"),
    ],
)
def test_refusals(fields, error, words) -> None:
    with pytest.raises(error, match=words):
        wrapped(**fields)
    with pytest.raises(ValueError, match=r"want \(N, H, W, C\)"):
        wrapped()(UPRIGHT[0], key=KEY)
