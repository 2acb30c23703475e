"""Train and evaluate one experiment: config in, run folder out.

    python -m experiments.run --config=experiments/mario_iggy.py --workdir=runs/mario_iggy

The same command continues a run that was stopped. Fields change on the command line:
--config.controller.value=0.3; experiments/defaults.py lists them all. With --profile=20:30 steps 20
to 29 are traced, and the report shows where their time went.
"""

import functools
import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import app, flags, logging
from ml_collections import config_flags

from experiments import build, defaults, densities, evaluate
from experiments.allocator import keep_freed_memory
from experiments.command_line import UsageError, check_arguments, leave, portable
from experiments.profiling import Profile, steps_of
from experiments.program_cache import keep_compiled_programs
from experiments.progress import Progress
from experiments.run_folder import RunFolder, environment
from experiments.straighten import straighten
from flowjax_inv import training
from flowjax_inv.checkpoints import Checkpoints
from flowjax_inv.data.batches import batch_indices, steps_per_epoch
from flowjax_inv.report.page import write_report
from flowjax_inv.report.tables import summary

__all__ = ["train_and_evaluate"]

_CONFIG = config_flags.DEFINE_config_file("config", None, "Experiment file, e.g. FILE.py:smoke.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; default runs/NAME.")
_PROFILE = flags.DEFINE_string("profile", "", "A:B: trace the steps A to B - 1, for the report.")


def train_and_evaluate(
    config: defaults.Config, workdir: str | Path, *, command: str = "", profile: str = ""
) -> dict[str, Any]:
    """Run an experiment from where it stands to its report.

    Args:
        config: see experiments/defaults.py.
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
    defaults.check(config)
    place = build.placement(config)
    plain = defaults.without_places(config)
    data = build.data_set(config)
    classes = build.outputs(config, data)
    targets, test_targets = (build.targets(config, split) for split in (data.train, data.test))
    normalization = build.normalization(config)
    transform = build.transform(config)
    classifier = build.network(config, "classifier", classes=classes)
    distribution = build.distribution(config, transform, classes=classes)
    objective = build.objective(config, distribution)

    batch = config.train.batch_size
    per_epoch = steps_per_epoch(len(data.train), batch)
    total = per_epoch * config.train.epochs
    burn_in = per_epoch * config.objective.burn_in_epochs
    profiled = steps_of(profile, total=total, burn_in=burn_in)
    optimizer = build.optimizer(config, total_steps=total, steps_per_epoch=per_epoch)
    controller = build.controller(config, total_steps=total - burn_in, steps_per_epoch=per_epoch)

    folder = RunFolder(workdir)
    earlier = folder.read_json("environment.json")
    finished = folder.results_of(plain)
    if finished is not None:
        late = "; not profiled: take an empty folder" if profiled else ""
        print(f"already finished: {_report(folder, command)}{late}")
        return finished
    if folder.read_json("config.json") is None:
        folder.write_json("config.json", {"command": command, **plain})
    here = environment() | {"devices_used": len(place.devices), "parallel": place.parallel}
    folder.write_json("environment.json", here)

    state = training.init_state(
        classifier,
        distribution,
        optimizer,
        controller,
        data.train.images[:batch],
        key=jax.random.key(config.seed),
        objective=objective,
    )
    state = place.replicate(state)
    order = functools.partial(
        batch_indices,
        size=len(data.train),
        batch_size=batch,
        seed=config.seed,
        shuffle=config.train.shuffle,
    )
    feed = build.feed(config, data.train.images, targets, order, end=total)
    sizes = {
        f"parameters_{name}": sum(leaf.size for leaf in jax.tree.leaves(params))
        for name, params in state.params.items()
    }
    make_step = functools.partial(
        training.make_step,
        classifier,
        distribution,
        transform,
        optimizer,
        controller,
        objective,
        normalization=normalization,
        mirror=config.data.mirror,
        placement=place,
        resident=feed.resident,
    )
    step_fn, burn_in_fn = make_step(), make_step(burn_in=True)
    take_totals = jax.jit(training.take_totals, donate_argnums=0)
    judge = evaluate.Judge(
        objective, data.test.images, test_targets, config.evaluation, normalization, place
    )
    score_fn, score_name = judge.make_score(classifier), objective.score_name
    subject = densities.Subject(
        distribution, transform, data, normalization, config, jax.random.key(config.seed)
    )
    arcs_fn = densities.make_arc_shares(subject)

    def variables(name: str) -> dict[str, Any]:
        return {"params": state.params[name], "batch_stats": state.batch_stats[name]}

    def measure_epoch() -> dict[str, jax.Array]:
        """Measure what metrics.jsonl shows at the end of every epoch."""
        arcs = arcs_fn(variables("distribution")) if arcs_fn else {}
        if not data.labelled:
            return arcs
        return {f"test_{score_name}": score_fn(variables("classifier")), **arcs}

    pending: list[tuple[int, dict[str, jax.Array], dict[str, jax.Array]]] = []

    def flush() -> None:
        """Write the pending line; called one interval late, so that no step waits for it."""
        for at, totals, measured in pending:
            sums = {name: float(value) for name, value in totals.items()}
            count = sums.pop("steps")
            for name in objective.unmeasured if at > burn_in else ():
                del sums[name]
            line = {"step": at, "epoch": at / per_epoch}
            line |= {name: value / count for name, value in sums.items()}
            line |= {name: float(value) for name, value in measured.items()}
            folder.append_metrics(line)
            stop_if_not_finite(line["loss"], at)
            progress.update(at, line)
        pending.clear()

    def stop_if_not_finite(loss: float, at: int) -> None:
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} within the {config.train.log_every} steps before step {at}; "
                "lower a learning rate, or set config.optimizer.*.clip_norm."
            )

    with (
        feed,
        Checkpoints(folder.checkpoints_path, plain) as checkpoints,
        Profile(profiled, folder) as traced,
    ):
        begin = 0
        if checkpoints.latest_step() is not None:
            state = checkpoints.restore(state)
            begin = int(state.step)
            print(f"continuing at step {begin} of {total}{_elsewhere(earlier, here)}")
        folder.cut_metrics(begin)
        print(f"{workdir}: {total} steps of {batch} images, metrics in {folder.metrics_path}")
        progress = Progress(total, batch, begin)
        first_step_seconds = None
        try:
            for done in range(begin, total):
                fn = burn_in_fn if done < burn_in else step_fn
                state = traced.call(done, fn, state, *feed(done))
                if first_step_seconds is None:
                    jax.block_until_ready(state.step)
                    first_step_seconds = time.perf_counter() - started
                    progress.restart_clock(done + 1)
                at = done + 1
                if at % config.train.log_every == 0 or at % per_epoch == 0:
                    flush()
                    totals, state = take_totals(state)
                    pending.append((at, totals, measure_epoch() if at % per_epoch == 0 else {}))
                if at % config.train.checkpoint_every == 0 or at == total:
                    flush()
                    stop_if_not_finite(float(state.totals["loss"]), at)
                    checkpoints.save(at, state)
        finally:
            progress.close()

    trained = time.perf_counter() - started
    both = {name: variables(name) for name in state.params}
    results, arrays = {}, {}
    if distribution.has_density:
        poses_known = data.centres_degrees is not None and densities.turns(transform)
        measure = densities.by_pose if poses_known else densities.on_images
        results, arrays = measure(subject, both["distribution"])
        if poses_known:
            more, shown = straighten(subject, both["distribution"], arrays)
            results, arrays = results | more, arrays | shown
    if data.labelled:
        results |= judge.averaged(classifier, distribution, transform, both, key=state.key)
    results |= {name: float(value) for name, value in measure_epoch().items()}
    alarms = config.alarms
    floor = alarms.entropy_floor_per_coordinate * transform.dim
    if distribution.discrete:
        floor = alarms.entropy_floor_discrete
    results |= {
        "class_names": list(data.class_names),
        "image_shape": list(data.train.images.shape[1:]),
        "train_images": len(data.train),
        "test_images": len(data.test),
        "data_note": data.note,
        "paper": config.paper,
        "pose_likelihood": config.objective.pose_likelihood,
        "coordinates": list(transform.names),
        "units": list(transform.units),
        "log_volume": results.get("log_volume", transform.dim * math.log(2.0)),
        "entropy_floor": floor,
        "collapsed": distribution.has_density and results.get("entropy", 0.0) < floor,
        "saturated": results.get("saturated_share", 0.0) > alarms.saturated_share,
        "method": config.distribution.name,
        "seed": config.seed,
        "steps": total,
        "resumed_at_step": begin,
        "seconds_to_first_step": first_step_seconds,
        "seconds_training": trained,
        "seconds": time.perf_counter() - started,
        **sizes,
    }
    if arrays:
        folder.write_arrays("evaluation.npz", arrays)
    folder.write_json("results.json", results)
    print(summary(results))
    print(f"report: {_report(folder, command)}")
    return results


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
    keep_compiled_programs()
    path, _, variant = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")
    workdir = _WORKDIR.value or f"runs/{'_'.join(filter(None, (Path(path).stem, variant)))}"
    command = shlex.join(
        ["python", "-m", "experiments.run", *portable(sys.argv[1:], besides=("profile",))]
    )
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
