"""``python -m torch_tpu cache``: looking after a folder of compiled programs."""

import argparse
import os
import re
import time
from collections import Counter
from typing import NamedTuple

_ROOT = "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT"
_NAME = "TORCH_TPU_TIER2_COMPILATION_CACHE"


class Entry(NamedTuple):
    file: str
    name: str | None
    plugin: str | None
    size: int
    used_ns: int
    created_ns: int
    compile_ns: int
    is_note: bool
    problem: str | None


def _size(text: str) -> int:
    from torch_tpu import _C

    try:
        return _C._parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _age(text: str) -> int:
    """Nanoseconds of "7d", "12h", "30m" or "90s"."""
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is not an age such as 7d, 12h, 30m or 90s")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] * 10**9


def _root(options: argparse.Namespace) -> str:
    """The folder that is meant: the given one, else what the environment says."""
    from torch_tpu import _C, _cache_remote

    root = options.root or os.environ.get(_ROOT) or _C._cache_tier2_folder(os.environ.get(_NAME, ""))
    if not root:
        raise SystemExit(f"which cache? Give --root DIR, or set {_ROOT} or {_NAME}")
    root = _cache_remote.local_folder(root) if "://" in root else root
    if not os.path.isdir(root):
        raise SystemExit(f"there is no folder {root}")
    return root


def _scan(root: str, verify: bool = False) -> list[Entry]:
    from torch_tpu import _C

    return [Entry(*row) for row in _C._cache_scan(root, verify)]


def _show_bytes(n: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"


def _show_age(ns: int) -> str:
    seconds = max(0, time.time_ns() - ns) // 10**9
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def ls(options: argparse.Namespace) -> int:
    """one line for each entry: key, size, time since it was last used (to the hour), compile time, name, plugin"""
    for e in _scan(_root(options)):
        what = "    note" if e.is_note else f"{e.compile_ns * 1e-9:7.3f}s"
        what = f"unusable: {e.problem}" if e.problem else f"{what}  {e.name}  ({e.plugin})"
        print(f"{e.file.partition('.')[0]}  {_show_bytes(e.size):>10}  {_show_age(e.used_ns):>4}  {what}")
    return 0


def stat(options: argparse.Namespace) -> int:
    """how much there is, and of what"""
    root = _root(options)
    entries = _scan(root)
    good = [e for e in entries if not e.problem]
    print(f"folder            {root}")
    print(f"entries           {len(entries)}, of which notes: {sum(e.is_note for e in good)}")
    print(f"size              {_show_bytes(sum(e.size for e in entries))}")
    print(f"compile time kept {sum(e.compile_ns for e in good) * 1e-9:.1f}s")
    if entries:
        print(f"last used         {_show_age(max(e.used_ns for e in entries))} ago; least recently {_show_age(min(e.used_ns for e in entries))} ago")
    for plugin, count in Counter(e.plugin for e in good).most_common():
        print(f"plugin            {plugin}: {count} entries")
    for name, count in Counter(e.name for e in good).most_common(10):
        print(f"name              {name}: {count} entries")
    if len(good) < len(entries):
        print(f"unusable          {len(entries) - len(good)}")
    return 0


def verify(options: argparse.Namespace) -> int:
    """reads and checks every entry; the exit status is 1 if any is bad"""
    from torch_tpu import _C

    root = _root(options)
    entries = _scan(root, verify=True)
    bad = [e for e in entries if e.problem]
    for e in bad:
        print(f"{e.file}: {e.problem}")
        if options.delete:
            _C._cache_remove(root, e.file)
    print(f"{len(entries)} entries, {len(bad)} bad" + (", removed" if bad and options.delete else ""))
    return 1 if bad else 0


def prune(options: argparse.Namespace) -> int:
    """removes entries that were not used for long, then the least recently used until the rest fits"""
    from torch_tpu import _C

    if options.max_size is None and options.older_than is None:
        raise SystemExit("prune what? Give --max-size SIZE or --older-than AGE")
    limit = -1 if options.max_size is None else options.max_size
    unused = -1 if options.older_than is None else options.older_than
    removed, size = _C._cache_prune(_root(options), limit, unused)
    print(f"removed {removed} entries, {_show_bytes(size)}")
    return 0


def add_parser(tools) -> None:
    cache = tools.add_parser("cache", help="look after a compile cache", description="Look after a compile cache.")
    commands = cache.add_subparsers(metavar="COMMAND", required=True)
    for function in (ls, stat, verify, prune):
        command = commands.add_parser(function.__name__, help=function.__doc__, description=function.__doc__)
        command.add_argument("--root", metavar="DIR", help=f"the folder; default: what {_ROOT} or {_NAME} says")
        command.set_defaults(run=function)
        if function is verify:
            command.add_argument("--delete", action="store_true", help="remove what is bad")
        if function is prune:
            command.add_argument("--max-size", type=_size, metavar="SIZE", help="bytes to keep, such as 2GiB")
            command.add_argument("--older-than", type=_age, metavar="AGE", help="such as 7d, 12h, 30m, 90s")
