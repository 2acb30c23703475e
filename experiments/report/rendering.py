"""Templates into pages, figures into pictures, and both into files that are whole or not there."""

import base64
import io
import os
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

__all__ = ["Section", "as_png", "inlined", "render", "write"]


@dataclass(frozen=True)
class Section:
    """A figure with its words; `missing` says in one line why there is no picture."""

    title: str
    caption: str
    source: str = ""
    missing: str = ""


def render(template: str, **values: Any) -> str:
    """Fill one of the templates beside this file."""
    room = resources.files("experiments.report")
    # The templates' names end in .j2, which jinja2 does not escape unless told to.
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: room.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def as_png(figure: Any) -> bytes:
    """Draw a matplotlib Figure; equal figures are equal bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()


def inlined(picture: bytes) -> str:
    """Write a PNG as the address of a picture that needs no file."""
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")


def write(path: Path, content: bytes) -> Path:
    """Write beside the place, then rename."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # mkstemp allows nobody else to read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
