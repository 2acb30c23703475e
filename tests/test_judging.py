"""What predictions of turned images are worth behind a gate."""

import numpy as np
import pytest

from experiments.measuring.judging import Probabilities, Seen, behind_gate


def predicted(count: int, *, changed: int) -> Probabilities:
    """Class 0 as it is, averaged class 1 for the first `changed`; all look turned."""
    averaged = np.tile([0.95, 0.05], (count, 1))
    averaged[:changed] = [0.05, 0.95]
    return {
        "plain": np.tile([0.9, 0.1], (count, 1)),
        "averaged": averaged,
        "evidence": np.full(count, 5.0),
    }


@pytest.mark.slow
def test_a_promise_is_checked_on_images_of_its_own() -> None:
    degrees = [float(angle) for angle in range(-180, 180, 45)]
    here = predicted(10, changed=1)
    seen = Seen(np.zeros(10, np.int32), 2, degrees, [here] * 8, here)
    clean, checked = predicted(100, changed=0), predicted(40, changed=12)
    found = behind_gate(seen, "averaged", clean, checked, 0.95, 0.05)
    assert found["clean_change"] == pytest.approx(0.3)
    assert found["upright_accuracy"] == pytest.approx(0.9)  # of those that are turned
    assert (found["images"], found["changed"]) == (100, 0)
    # Held-out images that change close the gate, and nothing changes any more.
    closed = behind_gate(seen, "averaged", predicted(100, changed=50), checked, 0.95, 0.05)
    assert closed["clean_change"] == 0
    assert closed["upright_accuracy"] == 1
