"""Traced steps: which may be, what they leave behind, and that they are the same steps."""

import contextlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from experiments import mario_iggy
from experiments.run import train_and_evaluate
from experiments.running.profiling import Profile, divided, operations_of, part_of, steps_of
from experiments.running.run_folder import RunFolder

PARTS = ("embedding", "density", "warp", "classifier", "optimizer")


def smoke() -> Any:
    config = mario_iggy.get_config("smoke")
    config.evaluation.poses, config.num_devices = 2, 1
    return config


@pytest.mark.parametrize(
    "text", ["3", "a:b", "-1:4", "4:4", "5:2", "0:4", "3:17", "16:20", "1:2:3"]
)
def test_steps_that_cannot_be_traced(text: str) -> None:
    want = r"--profile is '.*'; want A:B, .* with 1 <= A < B <= 16 \(a first step compiles\)\.$"
    with pytest.raises(ValueError, match=want) as caught:
        steps_of(text, total=16, burn_in=0)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["6:10", "8:10", "0:4"])
def test_steps_of_two_kinds_are_not_mixed(text: str) -> None:
    want = r"1 <= A < B <= 8 \(burn-in\) or 9 <= A < B <= 16 \(after it\)"
    with pytest.raises(ValueError, match=want):
        steps_of(text, total=16, burn_in=8)


def test_steps_that_can_be_traced() -> None:
    assert steps_of("", total=16, burn_in=8) == range(0)
    assert steps_of("1:8", total=16, burn_in=8) == range(1, 8)
    assert steps_of("9:16", total=16, burn_in=8) == range(9, 16)


def test_a_run_refuses_before_it_makes_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--profile is '20:30'; want A:B"):
        train_and_evaluate(smoke(), tmp_path / "run", profile="20:30")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("jit(body)/jvp(density)/Flow/embed/conv1/dot_general", "embedding"),
        ("jit(body)/transpose(jvp(density))/Flow/embed/conv1/add", "embedding"),
        ("jit(body)/transpose(jvp(density))/Flow/coupling0/mul", "density"),
        ("jit(body)/jvp(density)/vmap(vmap(jit(_uniform)))/while", "density"),
        ("jit(body)/transpose(jvp(warp))/jit(_warp)/gather", "warp"),
        ("jit(body)/jvp(classifier)/LeNet/embed/add", "classifier"),
        ("jit(body)/optimizer/sqrt", "optimizer"),
        ("jit(body)/jvp(jit(_warp))/gather", "other"),
        ("", "other"),
    ],
)
def test_the_part_of_an_operation(name: str, part: str) -> None:
    assert part_of(name) == part


PROGRAM = """HloModule jit_body, is_scheduled=true

%inside (param_0.1: f32[2]) -> f32[2] {
  %param_0.1 = f32[2]{0} parameter(0)
  %add.1 = f32[2]{0} add(%param_0.1, %param_0.1), metadata={op_name="jit(body)/jvp(warp)/add"}
  ROOT %mul.1 = f32[2]{0} multiply(%add.1, %add.1), metadata={op_name="jit(body)/jvp(warp)/mul"}
}

ENTRY %main (state.1: f32[2], /*index=1*/state.2: s32[]) -> (f32[2], f32[2]) {
  %copy_fusion.3 = f32[2]{0} fusion(%state.1), kind=kLoop, calls=%inside
  %while.9 = (s32[], f32[2]{0}) while(%tuple.1), body=%b, metadata={op_name="jit(body)/density/while"}
  %copy.4 = f32[2]{0} copy(%copy_fusion.3)
}
"""  # noqa: E501


def test_operations_of_a_program() -> None:
    found = operations_of(PROGRAM)
    assert found["mul.1"] == ("warp", False)
    assert found["copy_fusion.3"] == ("warp", False)  # by what it fuses
    assert found["while.9"] == ("density", True)
    assert found["copy.4"] == ("other", False)


def test_time_is_divided_and_nothing_counts_twice() -> None:
    alone, both = (0.0, 2.0, "warp", False), (1.0, 2.0, "classifier", False)
    loop, body = (4.0, 8.0, "density", True), (5.0, 7.0, "embedding", False)
    times = divided([both, loop, alone, body, (9.0, 9.0, "other", False)])
    assert times == {"warp": 1.5, "classifier": 0.5, "density": 2.0, "embedding": 2.0}
    assert divided([]) == {}


@jax.jit
def step(state: jax.Array, images: jax.Array) -> jax.Array:
    """Stands for a train step: the scopes of one, and a loop."""

    def loss(weights: jax.Array) -> jax.Array:
        with jax.named_scope("density"), jax.named_scope("embed"):
            embedding = images @ weights
        with jax.named_scope("density"):
            theta = jax.lax.fori_loop(0, 3, lambda _, x: jnp.cos(x @ weights), embedding)
        with jax.named_scope("warp"):
            views = jnp.take_along_axis(images, jnp.argsort(theta), axis=1)
        with jax.named_scope("classifier"):
            return jnp.sum(jnp.tanh(views @ weights + theta))

    gradient = jax.jacfwd(lambda s: loss(state + s))(0.0)
    with jax.named_scope("optimizer"):
        return state - 1e-3 * jnp.sort(state + gradient)


def run_steps(folder: RunFolder, steps: range, begin: int = 0, end: int = 8) -> np.ndarray:
    images = jax.random.uniform(jax.random.key(0), (64, 64))
    state = jnp.eye(64)
    with Profile(steps, folder) as traced:
        for number in range(begin, end):
            state = traced.call(number, step, state, images)
    return np.asarray(state)


def test_traced_steps_are_the_same_steps(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    kept = jax.config.jax_compilation_cache_include_metadata_in_key  # pyright: ignore
    plain = run_steps(folder, range(0))
    assert not list(tmp_path.iterdir())
    np.testing.assert_array_equal(run_steps(folder, range(2, 5)), plain)
    assert {path.name for path in tmp_path.iterdir()} == {"profile", "profile.json"}
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert (profile["first_step"], profile["last_step"]) == (2, 4)
    parts = profile["parts_seconds_per_step"]
    assert all(parts[part] > 0 for part in PARTS)
    assert 0 < sum(parts.values()) <= profile["seconds_per_step"]
    assert kept == jax.config.jax_compilation_cache_include_metadata_in_key  # pyright: ignore


def test_a_kept_program_without_the_scopes_is_not_taken(tmp_path: Path) -> None:
    """As one of an earlier version would be: for JAX's cache the two are one program."""

    def make(scope: contextlib.AbstractContextManager) -> Any:
        def twin(x: jax.Array) -> jax.Array:
            with scope:
                return jnp.sort(jnp.cos(x @ x))

        return jax.jit(twin)

    make(contextlib.nullcontext())(jnp.eye(32))
    scoped = make(jax.named_scope("warp"))
    with Profile(range(1, 3), RunFolder(tmp_path)) as traced:
        for number in range(4):
            traced.call(number, scoped, jnp.eye(32))
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["parts_seconds_per_step"]["warp"] > 0


def test_a_process_that_begins_too_late_says_so(tmp_path: Path, capsys) -> None:
    run_steps(RunFolder(tmp_path), range(2, 5), begin=2)
    assert "not profiled: this process begins at step 2; take A" in capsys.readouterr().out
    assert not (tmp_path / "profile.json").exists()


def test_an_error_ends_the_trace(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)

    def broken(*_: Any) -> None:
        raise FloatingPointError

    with Profile(range(1, 3), folder) as traced:
        traced.call(0, lambda: None)
        with pytest.raises(FloatingPointError):
            traced.call(1, broken)
    run_steps(folder, range(2, 4))  # could not begin if the other were still open
    assert (tmp_path / "profile.json").exists()


def test_a_program_out_of_reach_leaves_the_times_of_steps(tmp_path: Path) -> None:
    """As under pmap, or on a backend whose trace names no operation."""
    with Profile(range(1, 3), RunFolder(tmp_path)) as traced:
        for number in range(4):
            traced.call(number, lambda x: step(x, x), jnp.eye(4))
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["parts_seconds_per_step"] == {}
    assert profile["seconds_per_step"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_profiled_run_is_the_same_run(tmp_path: Path, capsys) -> None:
    plain, traced = tmp_path / "plain", tmp_path / "traced"
    train_and_evaluate(smoke(), plain)
    train_and_evaluate(smoke(), traced, profile="6:11")  # over an evaluation and a save
    assert (traced / "metrics.jsonl").read_bytes() == (plain / "metrics.jsonl").read_bytes()
    assert (traced / "config.json").read_bytes() == (plain / "config.json").read_bytes()
    one, two = (
        ocp.StandardCheckpointer().restore(folder / "checkpoints" / "16" / "state")["params"]
        for folder in (plain, traced)
    )
    jax.tree.map(np.testing.assert_array_equal, one, two)
    parts = json.loads((traced / "profile.json").read_text())["parts_seconds_per_step"]
    assert all(parts[part] > 0 for part in PARTS)
    assert parts["other"] < 0.5 * sum(parts.values())
    assert "Where a step&#39;s time goes" in (traced / "report.html").read_text()
    assert "Where a step&#39;s time goes" not in (plain / "report.html").read_text()
    capsys.readouterr()
    train_and_evaluate(smoke(), traced, profile="6:11")
    assert "not profiled: take an empty folder" in capsys.readouterr().out
