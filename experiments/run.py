"""Train and evaluate one experiment: config in, run folder out.

    python -m experiments.run --config=experiments/mario_iggy.py --workdir=runs/mario_iggy

The same command continues a run that was stopped. Fields change on the command line:
--config.controller.value=0.3; experiments/setup/defaults.py lists them all. With --profile=20:30
steps 20 to 29 are traced, and the report shows where their time went.
"""

import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from absl import app, flags, logging
from ml_collections import config_flags

from experiments.measuring.measures import Measures
from experiments.report.page import write_report
from experiments.report.papers import paper_figure
from experiments.report.tables import summary
from experiments.running import ruins
from experiments.running.allocator import keep_freed_memory
from experiments.running.collector import collect_rarely
from experiments.running.command_line import (
    UsageError,
    check_arguments,
    cut_short,
    leave,
    portable,
    read_recipe,
)
from experiments.running.log import Log
from experiments.running.profiling import Profile, steps_of
from experiments.running.program_cache import keep_compiled_programs
from experiments.running.run_folder import RunFolder, environment
from experiments.setup import defaults
from experiments.setup.assembly import Assembly, assemble
from experiments.setup.fields import flatten
from flowjax_inv import training
from flowjax_inv.training.checkpoints import Checkpoints

__all__ = ["train_and_evaluate"]

_CONFIG = config_flags.DEFINE_config_file("config", None, "Experiment file, e.g. FILE.py:smoke.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; default runs/NAME.")
_PROFILE = flags.DEFINE_string("profile", "", "A:B: trace the steps A to B - 1, for the report.")


def train_and_evaluate(
    config: defaults.Config, workdir: str | Path, *, command: str = "", profile: str = ""
) -> dict[str, Any]:
    """Run an experiment from where it stands to its report.

    Args:
        config: see experiments/setup/defaults.py.
        workdir: folder of the run; a stopped run of the same config continues there, a finished
            one is left alone.
        command: how to repeat it, for the report.
        profile: "A:B" traces the steps A to B - 1, and the report shows where their time went;
            changes no result.

    Returns:
        The content of results.json.

    Raises:
        ValueError: if a field or `profile` is out of range, or the folder holds a run of another
            config.
        FloatingPointError: if a logged loss is not finite.
    """
    started = time.perf_counter()
    parts = assemble(config)
    profiled = steps_of(profile, total=parts.total_steps, burn_in=parts.burn_in_steps)
    plain = defaults.without_places(config)

    folder = RunFolder(workdir)
    earlier = folder.read_json("environment.json")
    finished = folder.results_of(plain)
    if finished is not None:
        late = "; not profiled: take an empty folder" if profiled else ""
        print(f"already finished: {_report(folder, command)}{late}")
        return finished
    # Made before the folder is written to: what cannot go together is refused here.
    measures, state = Measures(parts), parts.init_state()
    if parts.data.note:
        print(f"data: {parts.data.note}")
    if parts.evidence:
        size = state.params["classifier"]["factor"].size
        print(f"posterior: {size:,} numbers, {size * 16 / 2**20:.0f} MB with gradient and moments")
    if folder.read_json("config.json") is None:
        folder.write_json("config.json", {"command": command, **plain})
    devices = {"devices_used": len(parts.place.devices), "parallel": parts.place.parallel}
    folder.write_json("environment.json", environment() | devices)

    with (
        Checkpoints(folder.checkpoints_path, plain) as checkpoints,
        Profile(profiled, folder) as traced,
    ):
        state, training_facts = _train(
            parts, state, measures, folder, checkpoints, traced,
            started=started, elsewhere=_elsewhere(earlier, devices),
        )  # fmt: skip
    trained = time.perf_counter() - started
    results, arrays = measures.of_run(state)
    results |= _facts(parts, results) | training_facts
    if results.get("ruin") == ruins.COLLAPSED and ruins.moves_a_pixel(results, parts):
        del results["ruin"], results["ruin_since_epoch"]
    results |= {
        f"parameters_{name}": sum(leaf.size for leaf in jax.tree.leaves(params))
        for name, params in state.params.items()
    }
    results |= {"seconds_training": trained, "seconds": time.perf_counter() - started}
    wrong = [n for n, x in results.items() if isinstance(x, float) and not math.isfinite(x)]
    if wrong:
        raise FloatingPointError(
            f"{', '.join(wrong)} of the finished run are not finite; lower a learning rate, or set "
            "config.optimizer.*.clip_norm, in an empty folder."
        )
    if arrays:
        folder.write_arrays("evaluation.npz", arrays)
    folder.write_json("results.json", results)
    print(summary(results))
    print(f"report: {_report(folder, command)}")
    return results


def _train(
    parts: Assembly,
    state: training.TrainState,
    measures: Measures,
    folder: RunFolder,
    checkpoints: Checkpoints,
    traced: Profile,
    *,
    started: float,
    elsewhere: str,
) -> tuple[training.TrainState, dict[str, Any]]:
    """Go from the newest checkpoint, if there is one, else from `state`, to the last step.

    Returns:
        The state, and of results.json what only training knows.
    """
    train, total = parts.config.train, parts.total_steps
    begin, every = 0, parts.config.evaluation.every_epochs
    with parts.feed() as feed:
        burn_in_fn, step_fn = (
            parts.make_step(burn_in=burn_in, resident=feed.resident) for burn_in in (True, False)
        )
        follow_up = parts.make_follow_up()
        take_totals = jax.jit(training.take_totals, donate_argnums=0)
        if checkpoints.latest_step() is not None:
            state = checkpoints.restore(state)
            begin = int(state.step)
            print(f"continuing at step {begin} of {total}{elsewhere}")
        folder.cut_metrics(begin)
        print(
            f"{folder.path}: {total} steps of {train.batch_size} images, metrics in "
            f"{folder.metrics_path}"
        )
        log = Log(parts, folder, begin)
        first_step_seconds = None
        try:
            for done in range(begin, total):
                fn = burn_in_fn if done < parts.burn_in_steps else step_fn
                state = traced.call(done, fn, state, *feed(done))
                if first_step_seconds is None:
                    jax.block_until_ready(state.step)
                    first_step_seconds = time.perf_counter() - started
                    log.progress.restart_clock(done + 1)
                at = done + 1
                state = follow_up(at, state)
                epoch_ends = at % parts.epoch_steps == 0
                if at % train.log_every == 0 or epoch_ends:
                    totals, state = take_totals(state)
                    measured = at % (every * parts.epoch_steps) == 0
                    log.take(at, totals, measures.of_epoch(state) if measured else {})
                if at % train.checkpoint_every == 0 or at == total:
                    log.flush()
                    log.stop_if_not_finite(float(state.totals["loss"]), at)
                    checkpoints.save(at, state)
        finally:
            log.progress.close()
    facts = {
        "steps": total,
        "resumed_at_step": begin,
        "seconds_to_first_step": first_step_seconds,
    }
    found, since = log.first_ruin()
    if found:
        facts |= {"ruin": found, "ruin_since_epoch": since}
    if parts.held_out is not None:
        facts["gap_allowed"] = parts.config.controller.gap
    if parts.learner is not None:
        facts["evidence"] = float(state.laplace.evidence)
        facts["prior_precision"] = float(jnp.exp(state.laplace.log_precision))
    if parts.objective.pairs:
        facts["train_pairs_found"] = log.mean_of_last_epoch("train_pairs_found")
    if parts.evidence:
        facts["bound"] = -log.mean_of_last_epoch("loss")
    return state, facts


def _facts(parts: Assembly, measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return of results.json what the run was, and its alarms by what was measured."""
    config, transform, distribution = parts.config, parts.transform, parts.distribution
    alarms, data = config.alarms, parts.data
    floor = alarms.entropy_floor_per_coordinate * transform.dim
    if distribution.discrete:
        floor = alarms.entropy_floor_discrete
    stated = {"paper": config.paper, "method": config.distribution.name}
    return {
        "class_names": list(data.class_names),
        "image_shape": list(data.train.images.shape[1:]),
        "train_images": len(data.train),
        "test_images": len(data.test),
        "data_note": data.note,
        "method": stated["method"],
        "paper": paper_figure(stated, dict(flatten(config))),
        "pose_likelihood": config.objective.pose_likelihood,
        "coordinates": list(transform.names),
        "units": list(transform.units),
        "log_volume": measured.get("log_volume", transform.dim * math.log(2.0)),
        "entropy_floor": floor,
        "saturated_limit": alarms.saturated_share,
        "collapsed": distribution.has_density and measured.get("entropy", 0.0) < floor,
        "saturated": measured.get("saturated_share", 0.0) > alarms.saturated_share,
        "seed": config.seed,
    }


def _elsewhere(earlier: Mapping[str, Any] | None, here: Mapping[str, Any]) -> str:
    """Say when a run goes on by another number of devices: reductions then round differently."""
    before = (earlier or {}).get("devices_used", here["devices_used"])
    if before == here["devices_used"]:
        return ""
    return f", on {here['devices_used']} devices after {before}: equal, but not bit for bit"


def _report(folder: RunFolder, command: str) -> Path:
    """Write the report from the folder's files: again and again the same, and cheap."""
    usual = {"command": command, **defaults.without_places(defaults.get_config())}
    return write_report(folder.path, defaults=usual)


def _main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        leave(UsageError(f"unexpected argument {argv[1]}; write --flag=value."))
    logging.set_verbosity(logging.WARNING)  # orbax tells its life at INFO
    keep_freed_memory()
    collect_rarely()
    keep_compiled_programs()
    path, _, variant = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")
    workdir = _WORKDIR.value or f"runs/{'_'.join(filter(None, (Path(path).stem, variant)))}"
    command = shlex.join(
        ["python", "-m", "experiments.run", *portable(sys.argv[1:], besides=("profile",))]
    )
    chosen = flags.FLAGS["config"]
    recipe = read_recipe(config_flags.get_config_filename(chosen))
    note = cut_short(_CONFIG.value, recipe, config_flags.get_override_values(chosen))
    if note:
        print(note)
    try:
        train_and_evaluate(_CONFIG.value, workdir, command=command, profile=_PROFILE.value)
    except (ValueError, FloatingPointError, OSError) as error:
        leave(error)
    except KeyboardInterrupt:
        print(f"\nstopped; the same command continues {workdir}", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    try:
        check_arguments(sys.argv)
    except UsageError as problem:
        leave(problem)
    app.run(_main)
