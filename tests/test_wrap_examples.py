"""The classifiers of docs/wrap.md: written as there, wrapped by the program."""

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experiments import poses as poses_config
from experiments import wrap

PAGE = (Path(__file__).parents[1] / "docs" / "wrap.md").read_text(encoding="utf-8")
SIDE = 16


def _save_torch() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 4))
    torch.jit.trace(model, torch.zeros(1, 3, SIDE, SIDE)).save("classifier.pt")


def _save_sklearn() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    joblib = pytest.importorskip("joblib")
    random = np.random.default_rng(0)
    model = linear.LogisticRegression(max_iter=5, tol=1.0)
    model.fit(random.normal(size=(40, SIDE * SIDE * 3)), np.arange(40) % 4)
    joblib.dump(model, "classifier.joblib")


def _save_onnx() -> None:
    pytest.importorskip("onnxruntime")
    onnx: Any = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = np.random.default_rng(0).normal(size=(3 * SIDE * SIDE, 4)).astype(np.float32)
    flatten = helper.make_node("Flatten", ["x"], ["flat"])
    times = helper.make_node("MatMul", ["flat", "w"], ["y"])
    graph = helper.make_graph(
        [flatten, times],
        "linear",
        [helper.make_tensor_value_info("x", kind, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", kind, ["n", 4])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    versions = {"opset_imports": [helper.make_opsetid("", 13)], "ir_version": 8}
    onnx.save(helper.make_model(graph, **versions), "classifier.onnx")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.filterwarnings("ignore")  # of the other libraries
@pytest.mark.parametrize(
    ("name", "save"),
    [("pytorch", _save_torch), ("sklearn", _save_sklearn), ("onnx", _save_onnx)],
)
def test_somebody_elses_classifier_is_wrapped(
    name: str, save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    save()
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (code,) = [block for block in blocks if f"{name}_classifier:classify" in block]
    (tmp_path / f"{name}_classifier.py").write_text(code)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    importlib.invalidate_caches()
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    random = np.random.default_rng(1)
    for number in range(40):
        pixels = random.integers(0, 255, (SIDE, SIDE, 3), np.uint8)
        Image.fromarray(pixels).save(pictures / f"{number}.png")
    small = poses_config.get_config()
    small.embedding.width, small.embedding.features = 4, 8
    small.evaluation.density_images = small.evaluation.density_samples = 10
    small.evaluation.batch_size = 8
    monkeypatch.setattr(poses_config, "get_config", lambda: small)
    given = {"classifier": f"{name}_classifier:classify", "images": pictures, "workdir": "run"}
    flags = [f"--{flag}={value}" for flag, value in (given | {"size": SIDE, "steps": 2}).items()]
    assert wrap.main(flags) == 0
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert card["pictures"] == 40
    assert card["host_seconds_per_call"] >= 0
    assert "milliseconds on the way to the classifier and back" in capsys.readouterr().out
