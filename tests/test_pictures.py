"""A folder of a person's own pictures, by class, comes to a report that shows them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments import pictures
from experiments.run import train_and_evaluate


@pytest.mark.slow
def test_pictures_of_a_person_come_to_a_report(tmp_path: Path, capsys) -> None:
    random = np.random.default_rng(0)
    for number in range(24):
        place = tmp_path / "folder" / f"class {number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 255, (9, 17, 3), np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    (tmp_path / "folder" / "class 1" / "bad.jpg").write_bytes(b"nonsense")
    config = pictures.get_config("smoke")
    config.data.dir, config.num_devices = str(tmp_path / "folder"), 1
    results = train_and_evaluate(config, tmp_path / "run")
    assert results["class_names"] == ["class 0", "class 1"]
    assert (results["train_images"], results["test_images"]) == (20, 4)
    assert "data: 1 left out: bad.jpg cannot be read" in capsys.readouterr().out
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Straightened by mean-shift" in page
    assert (tmp_path / "run" / "figures" / "pairs.png").stat().st_size > 1_000
