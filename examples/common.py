"""What the examples share: their two arguments, and sentences that every Python installation has."""

import argparse
import ast
import json
import sysconfig
import time
from pathlib import Path


def arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="tpu", help="tpu (default) or cpu")
    parser.add_argument("--json", metavar="OUT", help="write the results to this file")
    return parser.parse_args()


def write_results(path: str | None, results: dict) -> None:
    if path:
        Path(path).write_text(json.dumps(results))


def stdlib_docstrings(limit: int) -> list[tuple[str, str]]:
    """(name, docstring) of the standard library's top-level modules and what they define, in alphabetical order of files.

    The sources are read, not imported, so the text is the same wherever the Python version is the same.
    """
    found: list[tuple[str, str]] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in [tree, *tree.body]:
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            text, name = ast.get_docstring(node), getattr(node, "name", "")
            if text and not name.startswith("_") and not path.stem.startswith("_"):
                found.append((f"{path.stem}.{name}" if name else path.stem, text))
                if len(found) == limit:
                    return found
    return found


class Stopwatch:
    """Seconds since it was made, and since the last look."""

    def __init__(self):
        self.start = self.last = time.perf_counter()

    def total(self) -> float:
        return time.perf_counter() - self.start

    def lap(self) -> float:
        now = time.perf_counter()
        lap, self.last = now - self.last, now
        return lap
