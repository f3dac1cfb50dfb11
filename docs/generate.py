"""Writes the tables of environment variables and operators from the C tables that the extension holds, and from what was measured."""

import json
import re
from collections import defaultdict
from pathlib import Path

import torch
import torch_tpu._C as _C

OUT = Path(__file__).resolve().parent / "generated"
DATA = json.loads((Path(__file__).resolve().parent / "operators.json").read_text())  # written by tests/operator_data.py


def cell(text: str) -> str:
    return text.replace("|", " \\| ")


def environment() -> str:
    lines = ["# Environment variables", "", "All are read once, at first use.", "", "| variable | type | default | |", "| --- | --- | --- | --- |"]
    for row in _C._env_table():
        default = row["default"].split("|")[0] if row["type"] == "choice" else row["default"]
        kind = row["type"] if row["type"] != "choice" else row["default"].replace("|", ", ")
        lines.append(f"| `{row['name']}` | {kind} | {f'`{default}`' if default else ''} | {cell(row['description'])} |")
    return "\n".join(lines) + "\n"


# Overloads of other backends, layouts and PyTorch's own tests: nothing on this device reaches them.
FOREIGN = re.compile(
    r"cudnn|miopen|mkldnn|_mps|mps_|triton|_cslt|semi_structured|_test_|_foobar|cutlass|_flash_attention|efficient_attention|slow_conv"
    r"|flash_attention|int4pack|dyn_quant|_mixed_dtypes|fbgemm|quantized_(lstm|gru|batch_norm|max_pool)|_nested_|_make_dep_token|vulkan"
)
SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128",
         "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8"}  # fmt: skip
COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def base_of(overload: str) -> str:
    """The operator of an overload: add for add.Tensor, add_.Scalar and add.out."""
    name = overload.partition(".")[0]
    return name if name.endswith("__") or not name.endswith("_") else name[:-1]


def dtypes_of(overloads: list[str]) -> str:
    """The dtypes in which rows of PyTorch's operator database reach one of the overloads and are right."""
    found = {d for o in overloads for d in DATA["overloads"].get(o, ())}
    order = [*SHORT, *sorted(found - set(SHORT))]
    return " ".join(SHORT.get(d, d) for d in order if d in found)


def tpu_of(overloads: list[str]) -> str:
    """Whether libtpu compiles the programs that hold one of the overloads: yes, no, or how many of them."""
    right, count = (sum(DATA["tpu"].get(o, (0, 0))[i] for o in overloads) for i in (0, 1))
    return "" if not count else "yes" if right == count else "no" if not right else f"{right} of {count}"


def operators() -> str:
    """Native operators by family, with the dtypes and the TPU programs that were checked; then what is made of them, and the rest."""
    families = defaultdict(lambda: defaultdict(list))
    for row in _C._op_table():
        families[row["family"]][base_of(row["name"])].append(row["name"])
    count = sum(len(names) for operators in families.values() for names in operators.values())
    lines = [
        "# Operators", "",
        f"{count} overloads of ATen run on the device natively, as programs. Others are [decomposed](#decomposed-by-pytorch) by PyTorch into these, or run [on the CPU](#on-the-cpu) (see [Eager modes](../modes.md)).",
        "",
        f"*dtypes*: those in which PyTorch's operator database reaches the operator, and is right forward and backward: within `assert_close`'s tolerance of the CPU, or as near to float64 as the CPU is. *TPU*: whether libtpu compiles the database's programs that hold it, for {', '.join(DATA['topologies'])}. Both are measured by `make conformance` and `make aot-check`; an empty cell means that the database doesn't reach it, or that it wasn't measured.",
    ]  # fmt: skip
    for family, operators in families.items():
        lines += ["", f"## {family.replace('_', ' ')}", "", "| operator | overloads | dtypes | TPU |", "| --- | --- | --- | --- |"]
        for base, names in sorted(operators.items()):
            lines.append(f"| `{base}` | {', '.join(f'`{n}`' for n in sorted(names))} | {dtypes_of(names)} | {tpu_of(names)} |")
    names = sorted(n.removeprefix("aten::") for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::"))
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    rest = [n for n in names if not has("aten::" + n, "PrivateUse1")]
    composite = [n for n in rest if any(has("aten::" + n, key) for key in COMPOSITE)]
    lines += ["", "## Decomposed by PyTorch", "", f"{len(composite)} overloads are made of native ones by PyTorch itself. Of these the database reaches:", "",
              ", ".join(f"`{n}`" for n in composite if n in DATA["overloads"])]  # fmt: skip
    host = [n for n in rest if n not in set(composite) and not FOREIGN.search(n)]
    lines += ["", "## On the CPU", "", "Arguments are copied to the CPU and results back; `TORCH_TPU_CPU_FALLBACK=error` refuses instead.", "",
              ", ".join(f"`{n}`" for n in host)]  # fmt: skip
    return "\n".join(lines + differences()) + "\n"


def differences() -> list[str]:
    """Rows of the database that are not native or not the CPU's, and programs that the TPU compiler refuses."""
    lines = ["", "## What differs", "", "| row of the database | dtypes | direction | why |", "| --- | --- | --- | --- |"]
    lines += [f"| `{d['op']}` | {' '.join(d['dtypes'])} | {d['direction']} | {cell(d['why'])} |" for d in DATA["differences"]]
    lines += ["", "## What the TPU compiler refuses", "", "| program | TPU | why |", "| --- | --- | --- |"]
    return lines + [f"| `{r['program']}` | {', '.join(r['topologies'])} | {cell(r['why'])} |" for r in DATA["refused"]]


def main():
    OUT.mkdir(exist_ok=True)
    (OUT / "environment.md").write_text(environment())
    (OUT / "operators.md").write_text(operators())
    print(f"wrote {OUT}/environment.md and operators.md")


if __name__ == "__main__":
    main()
