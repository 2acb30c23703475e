"""Write tests/golden/tfrecord: a set prepared by real TensorFlow, in TFDS's default format.

    python -m venv with_tensorflow
    with_tensorflow/bin/pip install tensorflow-cpu tensorflow-datasets importlib_resources
    with_tensorflow/bin/python tests/golden/make_tfrecord.py

Never in the project's own environment, which has no TensorFlow. `expected.npz` holds the pictures
and labels as `tfds.load` gives them. Written with tensorflow 2.21.0, tensorflow-datasets 4.9.10.
"""

import shutil
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

HERE = Path(__file__).parent / "tfrecord"
SIZES = {"train": 12, "test": 5}


def pictures(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, 8, 10, 3) pictures and their labels, told apart by their first pixel."""
    random = np.random.default_rng(list(SIZES).index(split))
    images = random.integers(0, 256, (SIZES[split], 8, 10, 3), np.uint8)
    return images, np.arange(SIZES[split]) % 3


class TinyGolden(tfds.core.GeneratorBasedBuilder):
    """Random pictures; two shards in train."""

    VERSION = tfds.core.Version("1.2.3")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            description="Random pictures.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 10, 3)),
                    "label": tfds.features.ClassLabel(names=["one", "two", "three"]),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in SIZES}

    def _generate_examples(self, split):
        for index, (image, label) in enumerate(zip(*pictures(split), strict=True)):
            yield index, {"image": image, "label": int(label)}


if __name__ == "__main__":
    shutil.rmtree(HERE, ignore_errors=True)
    config = tfds.download.DownloadConfig(num_shards=2)
    builder = TinyGolden(data_dir=HERE)
    builder.download_and_prepare(download_config=config)
    arrays = {}
    for split in SIZES:
        loaded = list(tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False)))
        arrays[f"{split}_images"] = np.stack([example["image"] for example in loaded])
        arrays[f"{split}_labels"] = np.array([example["label"] for example in loaded])
    np.savez_compressed(HERE / "expected.npz", **arrays)
