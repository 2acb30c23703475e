"""What a config may not say: values out of range, and pairs that cannot go together."""

from typing import Any

from experiments.setup.defaults import FIELDS, Config
from experiments.setup.fields import did_you_mean, flatten

__all__ = ["check"]


def check(config: Config) -> None:
    """Refuse fields out of range, and pairs that cannot go together.

    Raises:
        ValueError: one line that names the field, what came and what is allowed.
    """
    values = dict(flatten(config))
    for name, field in flatten(FIELDS):
        value = values[name]
        if not field.holds(value):
            hint = did_you_mean(str(value), list(field.choices)) if field.choices else ""
            raise ValueError(
                f"config.{name} is {value!r} ({field.about}); allowed: {field.allowed()}{hint}"
            )
    if values["transform.name"] == "colour" and values["transform.half_range"]:
        raise ValueError(
            f"config.transform.half_range is {values['transform.half_range']} with "
            "transform.name=colour; give those of colours as transform.colour_half_range."
        )
    if not values["evaluation.rules"]:
        raise ValueError("config.evaluation.rules is empty; name at least one of plain, code.")
    for name in ("classifier", "embedding"):
        if values[f"{name}.name"] == "outside" and not values[f"{name}.function"]:
            raise ValueError(
                f"config.{name}.name is outside with an empty function; set config.{name}.function "
                "to MODULE:FUNCTION."
            )
    if values["classifier.dtype"] != "float32" and values["classifier.name"] == "outside":
        raise ValueError(
            f"config.classifier.dtype is {values['classifier.dtype']}, but outside holds its own "
            "weights; let its function compute so, and take float32 here."
        )
    loss, rejects = values["objective.loss"], values["objective.reject_distorted"] != "no"
    regression = loss in ("squared_error", "absolute_error")
    if regression and rejects:
        raise ValueError(
            f"config.objective.reject_distorted is one more class, and {loss} has none; set it to "
            "False."
        )
    if loss == "squared_error" and values["data.mirror"]:
        raise ValueError(
            "config.data.mirror is True with objective.loss=squared_error: a mirrored picture has "
            "another angle; set it to False."
        )
    if regression and "probs" in (values["objective.average"], values["evaluation.average"]):
        raise ValueError(
            f"config.objective.loss is {loss}, which has no probabilities to average; set "
            "objective.average to losses or logits, and evaluation.average to logits."
        )
    _check_points(values)
    if values["objective.label_smoothing"] and (
        values["objective.average"] == "probs" or values["objective.loss"] != "cross_entropy"
    ):
        raise ValueError(
            "config.objective.label_smoothing is for the cross-entropy with objective.average "
            "losses or logits; set it to 0."
        )
    maps = values["objective.maps"]
    if maps != (values["classifier.name"] == "unet") or values["embedding.name"] == "unet":
        raise ValueError(
            f"config.objective.maps is {maps} with classifier.name={values['classifier.name']} and "
            f"embedding.name={values['embedding.name']}; a unet makes maps of labels, and nothing "
            "else does: it is the classifier where maps is True, and nowhere else."
        )
    if maps and (values["data.mirror"] or values["controller.name"] == "gap"):
        raise ValueError(
            f"config.objective.maps is True with data.mirror={values['data.mirror']} and "
            f"controller.name={values['controller.name']}; maps are not mirrored, and there is no "
            "gap of theirs: set mirror to False, and take another controller."
        )
    if values["distribution.name"] == "flow_lrp" and values["evaluation.spread"] != "independent":
        raise ValueError(
            f"config.evaluation.spread is {values['evaluation.spread']} with flow_lrp, whose draws "
            "cannot be spread; take independent."
        )
    if values["objective.frozen_share"] and not values["objective.freeze_classifier"]:
        raise ValueError(
            f"config.objective.frozen_share is {values['objective.frozen_share']}, images that the "
            "classifier never learns; that wants objective.freeze_classifier=True."
        )
    burn_in, epochs = values["objective.burn_in_epochs"], values["train.epochs"]
    if burn_in >= epochs:
        raise ValueError(
            f"config.objective.burn_in_epochs is {burn_in} of config.train.epochs={epochs}; "
            "leave at least one epoch for the density."
        )
    if values["controller.name"] == "gap" and (
        values["objective.loss"] != "cross_entropy" or values["objective.pose_likelihood"]
    ):
        raise ValueError(
            "config.controller.name is gap, which compares cross-entropies of views and images; "
            f"with {values['objective.loss']} or pose_likelihood take constant."
        )
    if values["objective.judge"] == "evidence" and values["parallel"] == "pmap":
        raise ValueError(
            "config.parallel is pmap with objective.judge=evidence, that of all images together; "
            "set parallel to jit."
        )
    frozen = values["classifier.name"] == "outside"
    needs = {name: values[f"objective.{name}"] for name in ("freeze_classifier", "pose_likelihood")}
    needs["reject_distorted"] = values["objective.reject_distorted"] == "burn_in"
    for name in needs:
        if needs[name] and not burn_in and not frozen:
            raise ValueError(
                f"config.objective.{name} is {values[f'objective.{name}']} with burn_in_epochs=0: "
                "the classifier would "
                "learn nothing of it; set config.objective.burn_in_epochs."
            )
    if 0 < values["data.train_size"] < values["train.batch_size"]:
        raise ValueError(
            f"config.train.batch_size is {values['train.batch_size']}; allowed: 1 .. "
            f"{values['data.train_size']}, the size of the train split."
        )


def _check_points(values: dict[str, Any]) -> None:
    """Refuse points to networks and transforms of pictures, and pictures to those of points."""
    of_points = {
        "transform.name": values["transform.name"] == "points",
        "classifier.name": values["classifier.name"] == "pair_net",
        "objective.loss": values["objective.loss"] == "absolute_error",
    }
    if values["distribution.name"] in ("instaaug", "gaussian", "flow", "circular"):
        of_points["embedding.name"] = values["embedding.name"] == "pair_net"
    if len(set(of_points.values())) > 1:
        given = ", ".join(f"{name}={values[name]}" for name in of_points)
        raise ValueError(
            f"config has {given}; points go with transform.name=points, pair_net for both "
            "networks and objective.loss=absolute_error, and pictures with none of them."
        )
    if of_points["transform.name"] and (values["data.mirror"] or values["transform.colours"]):
        raise ValueError(
            f"config.data.mirror is {values['data.mirror']} and transform.colours is "
            f"'{values['transform.colours']}' with transform.name=points; points have neither a "
            "left side nor a colour: set them to False and empty."
        )
