"""Measures the error of float32 products at each precision and writes the table into precision.md.

    TORCH_TPU_EMULATE_MXU=1 python docs/precision.py            # the table
    TORCH_TPU_EMULATE_MXU=1 python docs/precision.py --json     # the numbers, for tests/test_precision.py

An error is that of one element of the result against float64, divided by the sum of the magnitudes of the products that the
element is made of: what the arithmetic bounds. The largest one is reported.
"""

import argparse
import json
import math
import re
from pathlib import Path

import torch
import torch.nn.functional as F

DOCUMENT = Path(__file__).resolve().parent / "precision.md"
PRECISIONS = ("medium", "high", "highest")

U = 2.0**-8
"""What rounding to bfloat16 changes a number by, relatively, at most."""
PRODUCT_BOUND = {
    "medium": 2 * U + U**2,  # (1 + u)^2 - 1
    "high": 3 * U**2 * (1 + U) ** 2,  # left out: the product of the second parts, and what two parts don't hold of each operand
    "highest": 4 * U**3 * (1 + U) ** 3,  # left out: second times third part, twice, and what three parts don't hold
}
"""The most that one product can be wrong by, relatively. Sums in float32 come on top: see ``bound``."""


def bound(precision: str, terms: int) -> float:
    """The most that a sum of ``terms`` products can be wrong by, relative to the sum of their magnitudes."""
    passes = {"medium": 1, "high": 3, "highest": 6}[precision]
    return PRODUCT_BOUND[precision] + (terms + passes) * 2.0**-24 * (1 + U)


def through_backward(forward):
    """The gradients of ``forward(x, w)`` for dy, computed by autograd. The forward pass runs outside of the precision context."""

    def run(context, dy, x, w):
        x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = forward(x, w)
        with context:
            y.backward(dy)
        return x.grad, w.grad

    return run


def inside(function):
    def run(context, *inputs):
        with context:
            return function(*inputs)

    return run


def conv_gradients(dy, x, w):
    return torch.ops.aten.convolution_backward(dy, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])[:2]


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


# name: shapes of the inputs, the longest sum of products, what runs. All but attention are sums of products of two inputs.
CASES = {
    "matmul": ([(64, 48), (48, 64)], 48, inside(torch.matmul)),
    "matrix times vector": ([(64, 48), (48,)], 48, inside(torch.mv)),
    "bmm": ([(4, 24, 48), (4, 48, 24)], 48, inside(torch.bmm)),
    "addmm": ([(40,), (32, 48), (48, 40)], 49, inside(torch.addmm)),
    "linear": ([(8, 6, 48), (40, 48), (40,)], 49, inside(F.linear)),
    "einsum": ([(3, 8, 16), (16, 8, 5)], 128, inside(lambda a, b: torch.einsum("bij,jik->bk", a, b))),
    "conv1d": ([(2, 6, 40), (8, 6, 5)], 30, inside(F.conv1d)),
    "conv2d": ([(2, 6, 12, 12), (8, 6, 3, 3)], 54, inside(lambda x, w: F.conv2d(x, w, padding=1))),
    "conv2d, groups": ([(2, 6, 12, 12), (9, 2, 3, 3)], 18, inside(lambda x, w: F.conv2d(x, w, groups=3))),
    "conv2d, depthwise": ([(2, 6, 12, 12), (6, 1, 3, 3)], 9, inside(lambda x, w: F.conv2d(x, w, groups=6))),
    "conv_transpose2d": ([(2, 6, 8, 8), (6, 8, 3, 3)], 54, inside(lambda x, w: F.conv_transpose2d(x, w, stride=2))),
    "conv2d, backward": ([(2, 8, 12, 12), (2, 6, 12, 12), (8, 6, 3, 3)], 288, inside(conv_gradients)),
    "conv2d, loss.backward()": (
        [(2, 8, 10, 10), (2, 6, 12, 12), (8, 6, 3, 3)], 200, through_backward(lambda x, w: F.conv2d(x, w))),
    "matmul, loss.backward()": ([(64, 32), (64, 48), (48, 32)], 64, through_backward(torch.matmul)),
    "attention": ([(2, 2, 24, 16), (2, 2, 24, 16), (2, 2, 24, 16)], 24, inside(attention)),
}  # fmt: skip


def context_of(precision: str | None):
    import contextlib

    return torch.tpu.precision(precision) if precision else contextlib.nullcontext()


def as_list(result) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def attention_bound(q, k, v, precision: str) -> torch.Tensor:
    """What attention's result can be wrong by: errors of the scores grow through exp, the second product adds its own."""
    scale = 1 / math.sqrt(q.shape[-1])
    scores = (q.abs() @ k.abs().transpose(-1, -2) * scale).amax(-1, keepdim=True)
    error = (bound(precision, q.shape[-1]) + 2.0**-21) * scores
    weights = torch.softmax(q @ k.transpose(-1, -2) * scale, -1)
    relative = torch.expm1(2 * error) * (1 + U) + bound(precision, k.shape[-2]) + 2.0**-20
    return relative * (weights @ v.abs())


def measure(name: str, precision: str | None, device: str = "tpu") -> dict[str, float]:
    """The largest error of the case, and the largest part of its bound that was reached (1: all of it)."""
    shapes, terms, run = CASES[name]
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    exact = as_list(run(context_of(None), *[x.double() for x in inputs]))
    if name == "attention":
        magnitude = [torch.softmax(inputs[0].double() @ inputs[1].double().transpose(-1, -2) / 4, -1) @ inputs[2].double().abs()]
        allowed = [attention_bound(*[x.double() for x in inputs], precision or "highest")]
    else:
        magnitude = as_list(run(context_of(None), *[x.double().abs() for x in inputs]))
        allowed = [bound(precision or "highest", terms) * m for m in magnitude]
    got = as_list(run(context_of(precision), *[x.to(device) for x in inputs]))
    errors = [(g.cpu().double() - e).abs() for g, e in zip(got, exact, strict=True)]
    return {
        "error": max((e / m).max().item() for e, m in zip(errors, magnitude, strict=True)),
        "of_bound": max((e / a).max().item() for e, a in zip(errors, allowed, strict=True)),
    }


def measure_all() -> dict[str, dict[str, dict[str, float]]]:
    """case -> precision, or "float32" for the CPU's own arithmetic -> ``measure``."""
    return {
        name: {p: measure(name, p) for p in PRECISIONS} | {"float32": measure(name, None, "cpu")} for name in CASES
    }  # fmt: skip


def power(x: float) -> str:
    return f"2^{math.log2(x):.1f}" if x else "0"


def table(results) -> str:
    lines = ["| | medium | high | highest | float32 on the CPU |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {name} | " + " | ".join(power(r[p]["error"]) for p in (*PRECISIONS, "float32")) + " |" for name, r in results.items()]
    lines.append("| bound of one product | " + " | ".join(power(PRODUCT_BOUND[p]) for p in PRECISIONS) + " | 2^-24.0 |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not torch.backends.tpu.plugin_info()["emulates_mxu"]:
        raise SystemExit("set TORCH_TPU_EMULATE_MXU=1: a CPU plugin computes in float32 otherwise")
    results = measure_all()
    if options.json:
        print(json.dumps(results))
        return
    text = DOCUMENT.read_text()
    text, count = re.subn(r"(<!-- measured -->\n).*?(<!-- end -->)", lambda m: m[1] + table(results) + "\n" + m[2], text, flags=re.S)
    assert count == 1, "precision.md has lost its marks"
    DOCUMENT.write_text(text)
    print(table(results))


if __name__ == "__main__":
    main()
