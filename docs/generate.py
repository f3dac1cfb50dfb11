"""Writes the tables of environment variables and operators from the C tables that the extension holds."""

from collections import defaultdict
from pathlib import Path

import torch_tpu._C as _C

OUT = Path(__file__).resolve().parent / "generated"


def cell(text: str) -> str:
    return text.replace("|", " \\| ")


def environment() -> str:
    lines = ["# Environment variables", "", "All are read once, at first use.", "", "| variable | type | default | |", "| --- | --- | --- | --- |"]
    for row in _C._env_table():
        default = row["default"].split("|")[0] if row["type"] == "choice" else row["default"]
        kind = row["type"] if row["type"] != "choice" else row["default"].replace("|", ", ")
        lines.append(f"| `{row['name']}` | {kind} | {f'`{default}`' if default else ''} | {cell(row['description'])} |")
    return "\n".join(lines) + "\n"


def operators() -> str:
    table = _C._op_table()
    families = defaultdict(list)
    for row in table:
        families[row["family"]].append(row["name"])
    lines = [
        "# Operators", "",
        f"{len(table)} overloads of ATen run on the device. PyTorch's composite operators are made of them and are not listed. What is in neither group runs on the CPU (see [Eager modes](../modes.md)).",
    ]  # fmt: skip
    for family, names in families.items():
        lines += ["", f"## {family.replace('_', ' ')}", "", ", ".join(f"`{name}`" for name in sorted(names))]
    return "\n".join(lines) + "\n"


def main():
    OUT.mkdir(exist_ok=True)
    (OUT / "environment.md").write_text(environment())
    (OUT / "operators.md").write_text(operators())
    print(f"wrote {OUT}/environment.md and operators.md")


if __name__ == "__main__":
    main()
