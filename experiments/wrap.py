"""Put a pose density and a gate before a frozen classifier, from a folder of upright pictures.

    python -m experiments.wrap --classifier=MODULE:FUNCTION --images=FOLDER --workdir=RUN

FUNCTION maps images (N, size, size, 3), intensities in [0, 1], to logits; of JAX, NumPy, PyTorch.
The density learns from four fifths of the pictures which way is up (no label is needed); a tenth
fits the gate, which promises that upright pictures keep their predictions; the last tenth shows
what became of it. Without --max_clean_loss at most 1 % of them may change, or, where the pictures
are too few to show that, the least that they can show. Writes a run folder, and into it card.json
and card.md: what was promised and measured. A stopped run goes on by the same command, with the
same pictures.
"""

import argparse
import dataclasses
import hashlib
import math
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import poses
from experiments.measuring.judging import CLOSED
from experiments.report.formats import as_percent, fixed, markdown_line
from experiments.run import train_and_evaluate
from experiments.running.allocator import keep_freed_memory
from experiments.running.collector import collect_rarely
from experiments.running.command_line import leave
from experiments.running.program_cache import keep_compiled_programs
from experiments.running.run_folder import RunFolder
from experiments.running.trained import Trained, load_run
from experiments.setup import data_sets, defaults
from flowjax_inv.data.user_pictures import find_pictures
from flowjax_inv.data.variants import turned_bicubic
from flowjax_inv.inference import Wrapped, least_images, wrap
from flowjax_inv.inference.robustness import C8
from flowjax_inv.networks import find_function

__all__ = ["main", "wrap_folder", "wrapped_run"]

_DEFAULT_LOSS = 0.01  # promised where nothing else is asked for and the pictures suffice
_HOST_BATCH = 32  # pictures a call, to time the way through the host


def wrap_folder(
    classifier: str,
    images: str | Path,
    workdir: str | Path,
    *,
    size: int = 32,
    channels: int = 3,
    steps: int = 3000,
    max_clean_loss: float | None = None,
    confidence: float = 0.95,
    command: str = "",
) -> dict[str, Any]:
    """Train the density, fit the gate, write the card; see the head of this file.

    Args:
        classifier: MODULE:FUNCTION.
        images: folder of upright pictures; subfolders are entered.
        workdir: folder of the run.
        size, channels: of what the classifier takes.
        steps: of the density's training, 128 pictures each, rounded up to whole epochs.
        max_clean_loss, confidence: see `inference.wrap`; None: 0.01, or the least that so many
            pictures can show.
        command: how to repeat it, for the report.

    Returns:
        What card.json holds.

    Raises:
        ValueError: if the classifier cannot be imported or called, there are too few pictures for
            the promise asked for, others than the run began with, or numbers are out of range.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}; want at least 1.")
    config = _config(classifier, images, size=size, channels=channels)
    data = data_sets.data_set(config)  # what counts is what can be read
    test, count = data.test.images, len(data.train)
    half = len(test) // 2
    promised = _promise(half, count + len(test), max_clean_loss, confidence)
    config.train.batch_size = min(config.train.batch_size, count)
    config.train.epochs = max(1, math.ceil(steps * config.train.batch_size / count))
    _refuse_other_pictures(RunFolder(workdir), Path(images))
    train_and_evaluate(config, workdir, command=command)
    run = load_run(workdir)
    wrapped = wrapped_run(run, test[:half], max_clean_loss=promised, confidence=confidence)
    card = {
        "classifier": classifier,
        "pictures": count + len(test),
        "pictures_for_default": 10 * least_images(_DEFAULT_LOSS, confidence),
        **_measured(run, wrapped, test[half:], find_function(classifier)),
    }
    folder = RunFolder(workdir)
    folder.write_json("card.json", card)
    (folder.path / "card.md").write_text(_page(card), encoding="utf-8")
    return card


def wrapped_run(run: Trained, images: np.ndarray, **fields: Any) -> Wrapped:
    """Return `inference.wrap` of a run's classifier and density.

    Args:
        run: finished.
        images: (N, H, W, C) uint8, upright, seen in no training, for the gate.
        **fields: of `wrap`.
    """
    pixels = run.normalization(jnp.asarray(images))
    key = jax.random.key(run.config.seed)
    return wrap(run.classify, run.propose, run.transform, pixels, key=key, **fields)


def _config(classifier: str, images: str | Path, *, size: int, channels: int) -> defaults.Config:
    """Return the config of poses.py for a classifier from outside and a folder."""
    blank = np.zeros((1, size, size, channels), np.float32)
    function = find_function(classifier)
    try:
        logits = np.asarray(function(blank))
    except Exception as error:  # whatever somebody else's function does
        raise ValueError(
            f"{classifier} failed on images of shape {blank.shape}: {error}; give --size and "
            "--channels as it wants them."
        ) from error
    if logits.ndim != 2 or len(logits) != 1:
        raise ValueError(
            f"{classifier} made {logits.shape} of images {blank.shape}; want (1, classes)."
        )
    config = poses.get_config()
    config.data.name, config.data.dir = "pictures", str(images)
    config.data.train_size, config.data.choice = 0, "first"  # all of them
    config.data.size, config.data.channels = size, channels
    config.data.mean, config.data.std = (0.0,), (1.0,)
    config.classifier.name, config.classifier.function = "outside", classifier
    config.classifier.features = logits.shape[1]
    config.embedding.noise = 0.075  # of intensities, which deviate by a quarter
    # What is outside a turned picture, means at the rim of the disc would show.
    config.embedding.circular_mask = True
    # About 16 pixels a side show which way is up.
    config.embedding.shrink = max(2, round(size / 16))
    config.objective.burn_in_epochs = 0
    return config


def _promise(fitting: int, pictures: int, max_clean_loss: float | None, confidence: float) -> float:
    """Return what is promised; refuse before training what the gate would refuse after it."""
    asked = _DEFAULT_LOSS if max_clean_loss is None else max_clean_loss
    needed = least_images(asked, confidence)
    if fitting >= needed:
        return asked
    if max_clean_loss is not None:
        raise ValueError(
            f"{pictures} pictures that can be read, of which a tenth fits the gate, cannot show a "
            f"loss of at most {asked:g} with confidence {confidence:g}; give {10 * needed:,}, a "
            "larger --max_clean_loss, or none: the least that they can show is then promised."
        )
    if fitting < 1:
        raise ValueError(
            f"{pictures} pictures that can be read leave none for the gate; give at least 10."
        )
    # The least whole thousandth that so many can show.
    least = math.ceil(1e3 * (1.0 - (1.0 - confidence) ** (1.0 / fitting)) + 1e-6) / 1e3
    least = min(least, 0.999)
    print(
        f"{fitting} pictures for the gate can show that at most {least:.1%} of upright predictions "
        f"change: that is promised. For {asked:.0%} it takes {10 * needed:,} pictures; "
        f"{pictures} could be read."
    )
    return least


def _refuse_other_pictures(folder: RunFolder, images: Path) -> None:
    """Refuse to go on with other pictures: what was trained on could come to fit the gate."""
    digest = hashlib.sha256()
    found = find_pictures(images, deep=True)
    for path in found:
        digest.update(f"{path.relative_to(images).as_posix()} {path.stat().st_size}\n".encode())
    here = {"count": len(found), "sha256": digest.hexdigest()}
    if folder.read_json("config.json") is None:
        folder.write_json("pictures.json", here)
    elif (folder.read_json("pictures.json") or here) != here:
        raise ValueError(
            f"{images} holds other pictures than {folder.path} was trained on; put those back, or "
            "take an empty --workdir."
        )


def _measured(
    run: Trained, wrapped: Wrapped, images: np.ndarray, function: Callable[[Any], Any]
) -> dict[str, Any]:
    """Compare the classifier alone and wrapped on pictures that neither training nor gate saw."""
    contract = wrapped.contract
    if contract is None:
        raise ValueError("there is no gate, so no promise.")
    alone = dataclasses.replace(wrapped, contract=dataclasses.replace(contract, gate=np.inf))
    key = jax.random.key(run.config.seed + 1)

    def seen(images: np.ndarray) -> jax.Array:
        return run.normalization(jnp.asarray(images))

    upright = alone(seen(images), key=key).prediction
    clean = wrapped(seen(images), key=key)
    agree: dict[str, list[float]] = {"alone": [], "wrapped": []}
    calls, seconds = [], []
    for angle in C8:
        turned = seen(turned_bicubic(images, angle, run.normalization.mean))
        wrapped(turned, key=key)  # compiles for as many as are acted on
        started = time.perf_counter()
        answer = wrapped(turned, key=key)
        seconds.append((time.perf_counter() - started) / len(images))
        calls.append(answer.calls)
        agree["alone"].append(float(np.mean(alone(turned, key=key).prediction == upright)))
        agree["wrapped"].append(float(np.mean(answer.prediction == upright)))
    return {
        **dataclasses.asdict(contract),
        "gate": min(contract.gate, CLOSED),
        "observed_images": len(images),
        "observed_clean_change": float(np.mean(clean.prediction != upright)),
        "c8_agreement_alone": float(np.mean(agree["alone"])),
        "c8_agreement_wrapped": float(np.mean(agree["wrapped"])),
        "calls_per_upright_image": clean.calls,
        "calls_per_turned_image": float(np.mean(calls)),
        "seconds_per_image": float(np.median(seconds)),
        "host_seconds_per_call": _host_seconds(run, function, np.asarray(seen(images))),
    }


def _host_seconds(run: Trained, function: Callable[[Any], Any], images: np.ndarray) -> float:
    """Return what a picture costs on its way out of JAX to the function and back, in seconds.

    The median over calls of the whole way, less that of the function alone.
    """
    batch = images[:_HOST_BATCH]
    ways = (
        lambda: jax.block_until_ready(run.classify(jnp.asarray(batch))),
        lambda: function(batch),
    )
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(11):  # in turns; the first compiles
        for way, seconds in zip(ways, took, strict=True):
            started = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - started)
    whole, alone = (float(np.median(seconds[1:])) for seconds in took)
    return max(whole - alone, 0.0) / len(batch)


def _page(card: dict[str, Any]) -> str:
    """Write the card as markdown."""
    rows = [
        ("pictures that could be read", str(card["pictures"])),
        ("of them it takes for a promise of 1 %", str(card["pictures_for_default"])),
        ("upright predictions that may change, at most", as_percent(card["max_clean_loss"])),
        ("with confidence", as_percent(card["confidence"], 0)),
        (f"upper bound, {card['images']} pictures", as_percent(card["bound"], 2)),
        (f"changed of {card['observed_images']} other ones",
         as_percent(card["observed_clean_change"], 2)),
        ("turned by eighths, as when upright: alone", as_percent(card["c8_agreement_alone"])),
        ("the same, wrapped", as_percent(card["c8_agreement_wrapped"])),
        ("classifier calls per upright picture", fixed(card["calls_per_upright_image"], 2)),
        ("classifier calls per turned picture", fixed(card["calls_per_turned_image"], 2)),
        ("milliseconds per turned picture", fixed(1e3 * card["seconds_per_image"], 2)),
        ("of a call, milliseconds on the way to the classifier and back",
         fixed(1e3 * card["host_seconds_per_call"], 3)),
        ("gate (nats)", fixed(card["gate"], 2)),
    ]  # fmt: skip
    lines = [markdown_line(["what", "value"]), "|---|---:|", *(markdown_line(r) for r in rows)]
    return f"# {card['classifier']}, wrapped\n\n" + "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Wrap one classifier; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.wrap",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--classifier", required=True, help="MODULE:FUNCTION, images to logits")
    parser.add_argument("--images", required=True, help="folder of upright pictures")
    parser.add_argument("--workdir", required=True, help="folder of the run")
    parser.add_argument("--size", type=int, default=32, help="pixels of a side")
    parser.add_argument("--channels", type=int, default=3, help="1 or 3")
    parser.add_argument("--steps", type=int, default=3000, help="of the density's training")
    parser.add_argument("--max_clean_loss", type=float, default=None, help="that is promised")
    parser.add_argument("--confidence", type=float, default=0.95, help="of the promise")
    parsed = parser.parse_args(arguments)
    keep_freed_memory()
    collect_rarely()
    keep_compiled_programs()
    sys.path.insert(0, "")  # a classifier may lie in the folder the command is given in
    places = {"images": "FOLDER", "workdir": "RUN"}
    given = {name: x for name, x in vars(parsed).items() if x != parser.get_default(name)}
    flags = [f"--{name}={value}" for name, value in (given | places).items()]
    command = shlex.join(["python", "-m", "experiments.wrap", *flags])
    try:
        card = wrap_folder(**vars(parsed), command=command)
    except (ValueError, FloatingPointError, OSError) as error:
        leave(error)
    except KeyboardInterrupt:
        print(f"\nstopped; the same command continues {parsed.workdir}", file=sys.stderr)
        return 130
    print(_page(card))
    print(f"card and report: {parsed.workdir}/card.md, {parsed.workdir}/report.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
