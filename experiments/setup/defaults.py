"""Every field of every experiment: its value, unit and range. The one place for defaults.

An experiment file starts from `get_config()` and sets what differs. Values are the paper's (or its
code's, where the paper is silent). What is allowed, `checks.check` sees to.
"""

from typing import Any

import ml_collections

from experiments.setup.fields import Field

__all__ = ["FIELDS", "PLACES", "Config", "get_config", "without_places"]

# A ConfigDict: ml_collections types every field as a union of all kinds, sections included.
Config = Any


_NETWORKS = (
    "simple_conv", "mlp", "lenet", "fixup_resnet", "layer13", "preact_resnet18", "polar_conv",
    "outside", "shallow", "unet", "pair_net", "blind",
)  # fmt: skip


def _network(name: str, features: int, width: int) -> dict[str, Field]:
    return {
        "name": Field(name, "network", choices=_NETWORKS),
        "features": Field(features, "length of the output; 0: one per class", low=0),
        "width": Field(width, "channels of the first convolution", low=1),
        "batch_norm": Field(value=False, about="of simple_conv, polar_conv: before every ReLU"),
        "dropout_rate": Field(0.3, "of layer13: share of the maps left out", low=0, high=0.9),
        "hidden": Field((256, 256), "widths of an MLP's hidden layers", low=1),
        "levels": Field(3, "of unet: sizes of its maps, each half the one before", low=1),
        "activation": Field("", "empty: the network's own", choices=("", "relu", "tanh", "cos")),
        "conv": Field("auto", "how convolutions run", choices=("auto", "lax", "onednn", "patches")),
        "function": Field("", "of outside: MODULE:FUNCTION, images to logits, frozen"),
        "frequency": Field(0.3, "of shallow: standard deviation of its Fourier features", above=0),
        "variance": Field(1.0, "of shallow: of the prior of its last weights", above=0),
        "learn_prior": Field(value=False, about="of shallow: variance and frequency, by the bound"),
        "point": Field(value=False, about="of shallow: no posterior, no divergence: the control"),
        "acts": Field(
            "images",
            "of shallow: what transforms move in training",
            choices=("images", "filters", "filters_exactly"),
        ),
    }


def _optimizer() -> dict[str, Field]:
    return {
        "name": Field("adamw", "optimizer", choices=("adamw", "adam", "sgd")),
        "learning_rate": Field(1e-3, "at the start", above=0),
        "warmup_steps": Field(0, "steps over which the rate rises from 0", low=0),
        "schedule": Field("cosine", "of the rate", choices=("constant", "cosine", "step")),
        "final_fraction": Field(0.1, "of the learning rate, at the end of cosine", low=0, high=1),
        "decay_epochs": Field(80, "epochs between the drops of step", low=1),
        "decay_factor": Field(0.1, "of one drop of step", above=0, high=1),
        "weight_decay": Field(0.0, "decoupled in adamw, part of the gradient in adam, sgd", low=0),
        "decay_all": Field(value=False, about="decay biases, norms and scalars, not kernels alone"),
        "scalar_fraction": Field(1.0, "of the rate, for parameters of one number", above=0),
        "momentum": Field(0.9, "of sgd", low=0, high=1),
        "nesterov": Field(value=False, about="of sgd"),
        "clip_norm": Field(0.0, "clip the gradient's norm; 0: never", low=0),
    }


FIELDS: dict[str, Any] = {
    "seed": Field(0, "of initialisation, order, copies and evaluation", low=0, high=2**32 - 1),
    "paper": Field("", "the paper's figure and where it stands, for tables and the report"),
    "parallel": Field("jit", "how devices share a batch", choices=("jit", "pmap")),
    "num_devices": Field(0, "devices used, the first ones; 0: all", low=0),
    "resident": Field(
        "auto",
        "whether the train images stay on the devices; auto: if they fill a quarter at most",
        choices=("auto", "yes", "no"),
    ),
    "data": {
        "name": Field(
            "mario_iggy",
            "mario_iggy; printed_digits; scenes; textures; clusters, molecules, of points; "
            "picture_classes, your own by class (dir); pictures, any without labels; or a prepared "
            "set: python -m flowjax_inv.data",
        ),
        "dir": Field("", "of prepared sets; empty: TFDS_DATA_DIR, else ~/tensorflow_datasets"),
        "size": Field(32, "of pictures: pixels of a side they are brought to", low=8),
        "channels": Field(3, "of pictures: 1, grey, or 3", low=1, high=3),
        "classes": Field("", "kept labels or names, as 0-9,12; empty: all"),
        "long_tail": Field(1.0, "rho: images of the first class over those of the last", low=1),
        "choice": Field("first", "which train images", choices=("first", "random")),
        "validation_size": Field(0, "last train images, which then replace the test split", low=0),
        "repeats": Field(1, "times every image is taken, before each is turned", low=1),
        "centre_crop": Field(0, "pixels kept of each side after turning; 0: all", low=0),
        "rotated_degrees": Field(0.0, "half-range of one fixed turn per image", low=0, high=180),
        "rotated_classes": Field("", "of those turns: labels or names, as 0-4; empty: all"),
        "disc": Field(value=False, about="nothing outside the inscribed disc, after turning"),
        "translated": Field(0.0, "half-range of one fixed shift per axis, half-widths", low=0),
        "scaled": Field(0.0, "half-range of one fixed log-scale per image", low=0),
        "mean": Field((0.0,), "subtracted from intensities in [0, 1], per channel or one"),
        "std": Field((1.0,), "divides them, per channel or one", above=0),
        "mirror": Field(value=False, about="swap left and right at random while training"),
        "turn_std": Field(1.0, "of scenes: radians, of the turn of each", low=0),
        "value": Field("energy", "of clusters", choices=("energy", "dipole")),
        "lamps": Field(2, "of textures: different lights of the train images", low=1),
        "lamp_half_range": Field(0.6, "of textures: how far lamps differ, log-gains", low=0),
        "sprites": Field("", ".npz with mario, iggy: (1, 3, 32, 32) in [0, 1]; empty: ours"),
        "half_range_degrees": Field(90.0, "R: poses are centre + U(-R, R)", above=0, high=90),
        "modes": Field(1, "arcs per class", low=1),
        "sectors": Field(0, "classes per figure round the circle; 0: up and down", low=0),
        "train_size": Field(12_000, "images; 0: all of a prepared set", low=0),
        "test_size": Field(600, "images; 0: all of a prepared set", low=0),
        "align_corners": Field(value=False, about="pixel-centre rule the set is rendered with"),
        "seed": Field(0, "of what is drawn, poses and their order", low=0),
        "redrawn": Field(value=False, about="drawn anew for each seed of the run: by their sum"),
    },
    "transform": {
        "name": Field(
            "affine", "transform", choices=("affine", "decoupled", "crop", "colour", "points")
        ),
        "subgroup": Field(
            "rotation_translation",
            "of affine, the last four of points; linear and rigid of points alone",
            choices=(
                "scale",
                "rotation_translation",
                "linear",
                "rigid",
                "affine",
                "rotation",
                "translation",
            ),
        ),
        "basis": Field("augerino", "of affine", choices=("augerino", "scales")),
        "entries": Field("bd", "of decoupled: which of a, b, c, d, e, f are free"),
        "half_range": Field((), "per coordinate, degrees or half-widths; empty: its own", above=0),
        "translation_half_range": Field(1.0, "half-widths, where half_range is empty", above=0),
        "colours": Field(
            "",
            "moved too, beside what name says; empty: none, and of colour alone jitter",
            choices=("", "gains", "light", "exposure", "jitter", "grey_world", "all"),
        ),
        "colour_half_range": Field(
            (), "per colour: intensities, log-gains, degrees; empty: its own", above=0
        ),
        "min_size": Field(0.2, "of crop, share of the picture's side", above=0, high=1),
        "max_size": Field(1.0, "of crop, share of the picture's side", above=0, high=1),
        "centre": Field(
            "room", "of crop: picture lets crops leave it", choices=("room", "picture")
        ),
        "warp": Field(
            "auto",
            "bilinear sampling; auto: on one CPU device native (flat without C), else gather",
            choices=("auto", "gather", "flat", "native", "map_coordinates"),
        ),
        "padding": Field("zeros", "outside the picture", choices=("zeros", "border")),
        "align_corners": Field(value=True, about="pixel-centre rule of the warp"),
    },
    "classifier": _network("simple_conv", features=0, width=32)
    | {
        "dtype": Field(
            "float32",
            "that it computes in; its parameters and all else stay float32",
            choices=("float32", "bfloat16"),
        ),
    },
    "embedding": _network("simple_conv", features=32, width=8)
    | {
        "circular_mask": Field(value=False, about="it sees the inscribed disc alone"),
        "noise": Field(0.0, "standard deviation of what training lays over its images", low=0),
        "shrink": Field(1, "pixels of a side that become one before it", low=1),
        "mirrored": Field(
            value=False, about="of polar_conv: after training, mean with the mirrored image's"
        ),
    },
    "distribution": {
        "name": Field(
            "flow",
            "method",
            choices=(
                "identity",
                "fixed",
                "augerino",
                "instaaug",
                "gaussian",
                "flow",
                "circular",
                "instaaug_lrp",
                "flow_lrp",
                "crop_grid",
            ),
        ),
        "box_low": Field((-1.0,), "of fixed: one number, or one per coordinate", low=-1, high=1),
        "box_high": Field((1.0,), "of fixed: one number, or one per coordinate", low=-1, high=1),
        "bonus": Field(
            "paper",
            "of augerino, instaaug: what alpha rewards",
            choices=("paper", "code", "entropy"),
        ),
        "start_half_range": Field(
            (0.1,),
            "of augerino, instaaug: share of the box, one or per coordinate",
            above=0,
            high=1,
        ),
        "levels": Field((2, 3, -1), "of the LRPs: 0 to 3, -1 the whole picture", low=-1, high=3),
        "sizes": Field(
            (),
            "share of the side, of the LRPs per level; empty: what a unit sees. Of crop_grid five "
            "crops each; empty: 0.75",
            above=0,
            high=1,
        ),
        "level_bias": Field(
            (),
            "of the LRPs: first preference per level; empty: 0, 3: 1, -1: 3",
            low=-100,
            high=100,
        ),
        "gradient": Field("score", "of instaaug_lrp", choices=("score", "gumbel_softmax")),
        "covariance": Field("diagonal", "of gaussian", choices=("diagonal", "full")),
        "bijection": Field("coupling", "paper: coupling", choices=("coupling", "spline")),
        "layers": Field(12, "couplings or splines; Mario-Iggy in the paper: 4", low=1),
        "width": Field(64, "of the conditioners' hidden layers; the code: 32", low=1),
        "hidden_layers": Field(1, "of the conditioners", low=1),
        "permutation_seed": Field(0, "of the fixed permutations", low=0),
        "log_scale_cap": Field(3.0, "smooth bound on the couplings' log-scales", above=0),
        "inner_squash": Field(6.0, "L tanh(z / L) after each coupling; 0: none", low=0),
        "tanh_width": Field(1.0, "w of the outer squash tanh(z / w)", above=0),
        "bins": Field(16, "of the splines, per coordinate", low=2),
        "circular_shift": Field(
            value=False, about="end with a learned turn of periodic coordinates"
        ),
        "base": Field("mixture", "of the flow", choices=("mixture", "box", "unit_box")),
        "components": Field(10, "of the mixture: 1, 10, 30 or 90 in the paper", low=1),
        "loc_start": Field("random", "of the first centres", choices=("random", "even")),
        "loc_std": Field(0.8, "half-range of random first centres", low=0, high=0.99),
        "start_scale": Field(0.1, "first std of a component, half the first box width", above=0),
        "gumbel": Field(
            "hard",
            "hard: straight-through; score: score function; relaxed: a surrogate density",
            choices=("hard", "score", "relaxed"),
        ),
        "temperature": Field(0.05, "of the Gumbel-softmax", above=0),
        "pathwise_entropy": Field(
            value=False,
            about="of gaussian, flow: its gradient along samples alone, with less noise",
        ),
        "base_projection_scale": Field(0.01, "first scale of the base's projection", low=0),
    },
    "objective": {
        "loss": Field(
            "cross_entropy",
            "of labels, of poses, or of values; contrast: of two views, without labels",
            choices=("cross_entropy", "squared_error", "absolute_error", "contrast"),
        ),
        "temperature": Field(0.5, "of contrast", above=0),
        "vectors": Field(value=False, about="of absolute_error: values are vectors of space"),
        "maps": Field(value=False, about="a label a pixel; maps of views are turned back"),
        "label_smoothing": Field(0.0, "share of a label spread over all classes", low=0, high=0.9),
        "judge": Field(
            "loss",
            "what the density learns by; evidence: the marginal likelihood, by Laplace",
            choices=("loss", "evidence"),
        ),
        "gradient": Field(
            "samples",
            "how the density learns what views cost; score: without a gradient of the classifier",
            choices=("samples", "score"),
        ),
        "frozen_share": Field(
            0.0,
            "with freeze_classifier: train images that only the density learns by, share",
            low=0,
            high=0.9,
        ),
        "freeze_classifier": Field(value=False, about="after burn-in the density alone learns"),
        "reject_distorted": Field(
            "no",
            "when evenly distorted images are one more class",
            choices=("no", "burn_in", "always"),
        ),
        "copies": Field(1, "n: views per image", low=1),
        "equivariance": Field(
            0.0, "weight of -log g(T - dT; A_dT I): the density moves with its image", low=0
        ),
        "equivariance_range": Field(1.0, "of dT, share of the box", above=0, high=1),
        "pose_likelihood": Field(
            value=False, about="after burn-in the density learns poses from images alone"
        ),
        "average": Field("losses", "over views", choices=("losses", "logits", "probs")),
        "include_original": Field(
            value=True, about="add the cross-entropy of the untransformed image"
        ),
        "baseline": Field(value=True, about="of the score function: the mean of the other losses"),
        "copies_per_chunk": Field(0, "views at a time, to save memory; 0: all", low=0),
        "chunk_statistics": Field(value=False, about="allow chunks with batch norm"),
        "burn_in_epochs": Field(0, "of the classifier alone, the density frozen", low=0),
    },
    "controller": {
        "name": Field(
            "constant", "of alpha", choices=("constant", "ramp", "gap", "band", "patient_band")
        ),
        "value": Field(0.3, "alpha of constant; the first of gap and patient_band", low=0),
        "gap": Field(
            0.1,
            "of gap: how many nats worse a view may be classified than its image, both held out",
            above=0,
        ),
        "calibrated": Field(
            value=False, about="of gap: compare at the temperature that fits the images held out"
        ),
        "rate": Field(0.05, "of gap: most that log alpha moves per measurement", above=0),
        "every_steps": Field(10, "of gap: steps between measurements", low=1),
        "held_out": Field(
            0.1,
            "of gap: share of the train images that are measured, not learned",
            above=0,
            high=0.5,
        ),
        "start": Field(0.4, "alpha of ramp, at the first step", above=0),
        "end": Field(0.6, "alpha of ramp, at the last step", above=0),
        "low": Field(0.0, "of the band of the train entropy, nats"),
        "high": Field(4.0, "of the band of the train entropy, nats"),
        "minimum": Field(0.001, "of alpha under band", above=0),
        "maximum": Field(0.5, "of alpha under band", above=0),
        "error": Field("point", "distance to the band", choices=("point", "interval", "huber")),
        "k_p": Field(0.01, "proportional gain", low=0),
        "k_i": Field(0.01, "integral gain", low=0),
        "k_d": Field(0.01, "derivative gain", low=0),
        "integral_start": Field(10.0, "first integral; alpha starts near k_i times it"),
        "decay": Field(0.9, "of the moving averages", low=0, high=1),
        "factor": Field(1.2, "of patient_band: on alpha, once per epoch", above=1),
        "tolerance": Field(0.005, "of patient_band: nats per epoch that count as coming back"),
        "most_factors": Field(50, "of patient_band: how far alpha may move", low=1),
    },
    "laplace": {
        "rate": Field(0.05, "of judge=evidence: Adam's, of the density; falls to a tenth", above=0),
        "every_steps": Field(10, "steps between those of the density", low=1),
        "images": Field(0, "of the train split that such a step sees; 0: all", low=0),
        "precision": Field(1.0, "first delta of the prior N(0, I / delta) of the weights", above=0),
        "precision_rate": Field(0.05, "of log delta", low=0),
        "precision_steps": Field(4, "of log delta, after each of the density", low=0),
    },
    "optimizer": {"classifier": _optimizer(), "distribution": _optimizer()},
    "train": {
        "epochs": Field(250, "passes over the train split; Mario-Iggy in the paper: 250", low=1),
        "least_steps": Field(0, "more epochs, burn-in along, if theirs are fewer steps", low=0),
        "batch_size": Field(128, "images per step, before copies", low=1),
        "shuffle": Field(value=True, about="a new order every epoch; the paper shuffles once"),
        "log_every": Field(25, "steps per line of metrics.jsonl", low=1),
        "checkpoint_every": Field(200, "steps between checkpoints", low=1),
    },
    "evaluation": {
        "batch_size": Field(300, "images per call", low=1),
        "num_samples": Field(20, "K: views averaged per test image", low=1),
        "rules": Field(
            ("plain",),
            "which views; the first is the headline. code: first K of 300 draws of norm below 1, "
            "and the original",
            choices=("plain", "code"),
        ),
        "average": Field("probs", "over views; paper: probs", choices=("probs", "logits")),
        "spread": Field(
            "independent",
            "how the views of an image are drawn; stratified: one in each of K equal parts",
            choices=("independent", "antithetic", "stratified"),
        ),
        "view_counts": Field(
            (), "for a curve: more numbers of views to average, the image as it is the first", low=2
        ),
        "every_epochs": Field(
            1, "epochs between measures of the test split while a run trains", low=1
        ),
        "density_images": Field(1000, "test images whose density is measured", low=1),
        "arc_images": Field(20, "of each class: those whose arcs are followed by epoch", low=1),
        "poses": Field(72, "per class, evenly over its first arc", low=2),
        "density_samples": Field(1000, "of theta per pose", low=10),
        "straighten_shown": Field(value=False, about="mean-shift on the images a report shows"),
        "straighten_steps": Field(
            50, "of mean-shift on figures of known pose, 100 samples each; 0: none", low=0
        ),
    },
    "alarms": {
        "entropy_floor_per_coordinate": Field(-1.0, "nats; below it the density has collapsed"),
        "entropy_floor_discrete": Field(0.05, "nats, of a choice of crops: the same", low=0),
        "saturated_share": Field(0.05, "of coordinates at the box's edge", low=0, high=1),
    },
}


def _values(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: field.value if isinstance(field, Field) else _values(field)
        for name, field in fields.items()
    }


def get_config() -> Config:
    """Return all defaults; unknown names are refused from then on."""
    return ml_collections.ConfigDict(_values(FIELDS)).lock()


# Where and on what a run happens, not what it is: a run may go on elsewhere.
PLACES = ("parallel", "num_devices", "resident", "data.dir")


def without_places(config: Config) -> dict[str, Any]:
    """Return the fields that say what a run is, as nested plain values."""
    plain = config.to_dict()
    for name in PLACES:
        *sections, field = name.split(".")
        section = plain
        for part in sections:
            section = section[part]
        del section[field]
    return plain
