"""Prepare, list and verify data sets.

    python -m flowjax_inv.data prepare mnist --from FOLDER
    python -m flowjax_inv.data prepare folder --from FOLDER --name my_set
    python -m flowjax_inv.data list
    python -m flowjax_inv.data verify mnist

Nothing is downloaded. FOLDER holds the official archive; sets land in DATA_DIR/NAME/VERSION, where
TFDS finds them too.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from flowjax_inv.data import prepare, stored
from flowjax_inv.data.recipes import SETS

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m flowjax_inv.data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    parts = {
        "prepare": "write a set from its official archive",
        "list": "say which sets are prepared, and which can be",
        "verify": "read every picture of the sets, and compare files with their digests",
    }
    made = {name: commands.add_parser(name, help=text) for name, text in parts.items()}
    for command in made.values():
        command.add_argument(
            "--data_dir", help="default: TFDS_DATA_DIR, else ~/tensorflow_datasets"
        )
    made["prepare"].add_argument("set", metavar="NAME", help=", ".join(SETS))
    made["prepare"].add_argument(
        "--from", required=True, dest="source", metavar="PATH", help="folder of the archive"
    )
    made["prepare"].add_argument("--name", default="", help="store it under this name")
    made["prepare"].add_argument(
        "--allow-unknown", action="store_true", help="take contents that are not the official ones"
    )
    made["verify"].add_argument("set", metavar="NAME", nargs="?", help="default: all")
    return parser


def _line(described: stored.Description) -> str:
    sizes = ", ".join(f"{size} {split}" for split, size in described.sizes.items())
    shape = "x".join(map(str, described.shape))
    classes = f"{len(described.class_names)} classes"
    note = f"; {described.note}" if described.note else ""
    title = f"{described.name} {described.version}"
    return f"{title}: {sizes}, {shape}, {classes}, {described.file_format}{note}"


def _prepare(arguments: argparse.Namespace) -> int:
    started = time.perf_counter()
    folder, made = prepare.prepare(
        arguments.set,
        arguments.source,
        data_dir=arguments.data_dir,
        name=arguments.name,
        allow_unknown=arguments.allow_unknown,
    )
    print(_line(stored.describe(folder)))
    seconds = time.perf_counter() - started
    print(f"written to {folder} ({seconds:.1f} s)" if made else f"was in {folder}, left as it is")
    return 0


def _list(place: Path) -> int:
    folders = stored.set_folders(place)
    print(f"in {place}:" if folders else f"nothing is prepared in {place}")
    there = set()
    for folder in folders:
        there.add(folder.relative_to(place).parts[0])
        try:
            print("  " + _line(stored.describe(folder)))
        except ValueError as error:
            print(f"  unusable: {error}")
    for root in sorted(place.glob("*")):
        # TFDS keeps folders of its own here, as downloads.
        if root.name not in there and (root.name in SETS or any(root.glob("incomplete.*"))):
            instead = stored.unfinished(root)
            if instead:
                there.add(root.name)
                print(f"  {root.name} {instead}")
    rest = [name for name in SETS if name not in there]
    print(f"can be prepared from their archives: {', '.join(rest)}")
    return 0


def _verify(place: Path, name: str | None) -> int:
    folders = [stored.find(name, place)] if name else stored.set_folders(place)
    if not folders:
        raise ValueError(f"nothing is prepared in {place}; see: python -m flowjax_inv.data list")
    wrong = 0
    for folder in folders:
        started = time.perf_counter()
        try:
            described = stored.verify(folder)
        except ValueError as error:
            wrong += 1
            print(f"wrong: {error}")
        else:
            print(f"right: {_line(described)} ({time.perf_counter() - started:.1f} s)")
    return int(wrong > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.command == "prepare":
            return _prepare(parsed)
        place = stored.data_dir_path(parsed.data_dir)
        return _list(place) if parsed.command == "list" else _verify(place, parsed.set)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
