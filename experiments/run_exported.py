"""Run an exported predictor with nothing but JAX: neither this package nor Flax is needed.

    python run_exported.py FOLDER IMAGES.npy

FOLDER holds program.jax, weights.safetensors and card.json; IMAGES.npy an array (N, H, W, C) of
uint8. JAX reads programs by flatbuffers, which it does not bring: pip install jax flatbuffers.
The views are samples, by the key of seed 0: [0, 0].
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
from jax import export

if importlib.util.find_spec("flatbuffers") is None or len(sys.argv) != 3:
    sys.exit(
        "error: want FOLDER IMAGES.npy, and what JAX reads programs by: pip install flatbuffers"
    )
folder, images = Path(sys.argv[1]), np.load(sys.argv[2])
raw = (folder / "weights.safetensors").read_bytes()  # a length, a JSON header, float32 numbers
at = 8 + int.from_bytes(raw[:8], "little")
weights = {
    name: np.ndarray(tensor["shape"], "<f4", raw, at + tensor["data_offsets"][0])
    for name, tensor in json.loads(raw[8:at]).items()
}
program = export.deserialize(bytearray((folder / "program.jax").read_bytes()))
names = json.loads((folder / "card.json").read_text())["class_names"]
for row in np.asarray(program.call(weights, images, np.zeros(2, np.uint32))["probabilities"]):
    print(names[row.argmax()], *row)
