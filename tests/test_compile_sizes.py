"""torch.compile with sizes that vary: one program for every length up to the bound, and NaN beyond each length.

What lies beyond a size is chosen when the device is opened, so the tests run this file as a program of its own."""

import copy
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

LENGTHS = (17, 9, 33, 64, 100, 128, 5, 6, 77)
WIDTH = 16


def attention(x, w):
    q, k, v = (x @ w).relu(), x * 2, x
    scores = q @ k.transpose(1, 2) / WIDTH**0.5
    mask = torch.ones(x.shape[1], x.shape[1], device=x.device, dtype=torch.bool).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def written(x, w):
    y = x.clone()
    y[:, -1] = 0
    y[:, 1:] += x[:, :-1]
    return y


def sizes(x, w):
    n = x.shape[1]
    return x.new_zeros(n, 3) + n, torch.arange(n, device=x.device) * 2, n * 4 - 1


FUNCTIONS = {
    "attention": attention,
    "written": written,
    "sizes": sizes,
    "sums": lambda x, w: (x.sum(1), x.mean((0, 1)), x.std(1), x.amax(1), x.argmin(1), x.prod(1), x.logsumexp(1), x.norm()),
    "matrix products": lambda x, w: (x @ w, x.transpose(1, 2) @ x, torch.einsum("bnd,bmd->bnm", x, x), x.flatten(0, 1) @ w),
    "norms": lambda x, w: (F.layer_norm(x, (WIDTH,)), F.normalize(x, dim=1), F.rms_norm(x, (WIDTH,)), F.softmax(x, 1)),
    "scaled dot products": lambda x, w: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "joined": lambda x, w: (torch.cat([x, x], 1), torch.cat([x, x * 2, x[:, :1]], 1).sum(1), torch.stack([x, x]).sum(2)),
    "parts": lambda x, w: (x[:, 1:], x[:, :-1].sum(1), x[:, -1], x[:, -2:].sum(1), x[:, 0], x.narrow(1, 1, 1)),
    "shapes": lambda x, w: (x.reshape(-1, 4), x.view(2, -1), x.permute(1, 0, 2).reshape(x.shape[1], -1), x.transpose(1, 2).flatten(1)),
    "merged sums": lambda x, w: (x.transpose(0, 1).reshape(-1, WIDTH).cumsum(0)[-1], x.transpose(1, 2).flatten().sum()),
    "rolled": lambda x, w: x.roll(63946529, 1),
    "orders": lambda x, w: (x.sort(1).values, x.sort(1, descending=True).indices.float().sum(1), x.topk(2, 1).values, x.flip(1)),
    "scans": lambda x, w: (x.cumsum(1), x.cummax(1).values, x.logcumsumexp(1)),
    "indexed": lambda x, w: (x[:, torch.arange(x.shape[1] - 1, -1, -1, device=x.device)], w[(x[..., 0] > 0).long()],
                             torch.zeros(5, device=x.device).index_add(0, (x[0, :, 0].abs() * 9 % 5).long(), x[0, :, 1])),
    "padded": lambda x, w: (F.pad(x, (0, 0, 1, 2)), F.pad(x, (1, 1, 0, 3), value=7.0).sum(1), F.pad(x, (0, 0, 0, 1)).amin(1)),
    "compared": lambda x, w: (torch.where(x > 0, x, x.mean(1, keepdim=True)), (x > 0).all(1), (x > 1).any(1), x.isnan().sum()),
    "repeated": lambda x, w: (x.repeat(1, 2, 1).sum(1), x.unsqueeze(1).expand(-1, 3, -1, -1).sum((1, 2)), x.repeat_interleave(2, 2)),
    "masks": lambda x, w: (torch.tril(x @ x.transpose(1, 2)), torch.triu(x @ x.transpose(1, 2), 1).sum(-1)),
    "dot": lambda x, w: (x[0, :, 0].dot(x[1, :, 0]), torch.outer(x[0, :, 0], x[1, :, 1]).sum(), x[0] @ w[0]),
    "losses": lambda x, w: (F.mse_loss(x, x * 2), F.cross_entropy(x.flatten(0, 1), (x[..., 0] > 0).long().flatten()), F.smooth_l1_loss(x, x + 1)),
}
PAIRS = ((17, 9), (9, 17), (33, 64), (5, 5), (6, 77), (128, 128))
TABLE = torch.arange(512.0)
FUNCTIONS_OF_TWO = {  # of x [2, n, WIDTH] and y [2, m, WIDTH]
    "sums of sizes": lambda x, y: (x.shape[1] + y.shape[1], x.sum() * (x.shape[1] + y.shape[1]), x.new_zeros(x.shape[1] + y.shape[1] - 1)),
    "differences": lambda x, y: (x.shape[1] - y.shape[1], x.sum() * (y.shape[1] - x.shape[1]), 3 * y.shape[1] - 3 * x.shape[1] + 7),
    "both joined": lambda x, y: (torch.cat([x, y], 1), torch.cat([y, x], 1).sum(1), torch.cat([x, y, x[:, :3]], 1).amax(1)),
    "parts of both": lambda x, y: (torch.cat([x, y], 1)[:, x.shape[1]:] + 0, torch.cat([x, y], 1)[:, -x.shape[1]:] + 0, torch.cat([x, y], 1)[:, :-1]),
    "attention to both": lambda x, y: (x @ torch.cat([x, y], 1).transpose(1, 2)).softmax(-1) @ torch.cat([x, y], 1),
    "products of both": lambda x, y: ((x @ y.transpose(1, 2)).flatten(1).sum(1), x.shape[1] * y.shape[1] * 2),
    "from a table": lambda x, y: (TABLE.to(x.device)[-x.shape[1]:], TABLE.to(x.device)[max(0, 512 - y.shape[1]):], x[:, -4095:].sum(1)),
    "decided": lambda x, y: (max(x.shape[1], 2), min(4096, y.shape[1] + 1) + x.sum(), torch.arange(max(0, x.shape[1] - 3), device=x.device)),
    "three added": lambda x, y: torch.cat([x, y, x], 1).sum(1),
    "a difference of products": lambda x, y: (x[:, 1:].transpose(0, 1).reshape(-1).sum(), x.shape[1] * y.shape[1] - y.shape[1]),
    "halves": lambda x, y: (x.sum() * (x.shape[1] // 2), y.shape[1] // 3),
    "undecided": lambda x, y: (max(x.shape[1], 20) + 1, x.sum() * max(x.shape[1], y.shape[1])),
}
APART = {"rolled", "three added", "a difference of products", "halves", "undecided"}  # no form: each length has a program of its own
MODULES = {
    "transformer": lambda: torch.nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True),
    "embedding": lambda: torch.nn.Sequential(torch.nn.Linear(WIDTH, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)),
    "attention": lambda: SelfAttention(),
}


class SelfAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        q, k, v = (t.view(*t.shape[:2], 2, -1).transpose(1, 2) for t in self.inner(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def compare(actual, expected, what):
    for a, e in zip(torch.utils._pytree.tree_leaves(actual), torch.utils._pytree.tree_leaves(expected), strict=True):
        if isinstance(e, torch.Tensor):
            assert a.stride() == e.stride() or not a.numel(), (what, a.stride(), e.stride())
            torch.testing.assert_close(a.cpu(), e, rtol=2e-4, atol=2e-4, msg=lambda m: f"{what}: {m}")
        else:
            assert a == e, what


def marked(x):
    torch._dynamo.mark_dynamic(x, 1, min=5, max=128)
    return x


def run_function(name):
    w = torch.randn(WIDTH, WIDTH)
    compiled = torch.compile(FUNCTIONS[name], backend="tpu")
    for n in LENGTHS:
        x = torch.randn(2, n, WIDTH)
        compare(compiled(marked(x.to("tpu")), w.to("tpu")), FUNCTIONS[name](x, w), f"{name} of length {n}")
    return len(LENGTHS) if name in APART else 1


def run_function_of_two(name):
    compiled = torch.compile(FUNCTIONS_OF_TWO[name], backend="tpu")
    for n, m in PAIRS:
        x, y = torch.randn(2, n, WIDTH), torch.randn(2, m, WIDTH)
        compare(compiled(marked(x.to("tpu")), marked(y.to("tpu"))), FUNCTIONS_OF_TWO[name](x, y), f"{name} of lengths {n} and {m}")
    return len(PAIRS) if name in APART else 1


def run_module(name):
    """With gradients: a program forward and one backward."""
    module = MODULES[name]()
    there = copy.deepcopy(module).to("tpu")
    compiled = torch.compile(there, backend="tpu")
    for n in LENGTHS:
        x = torch.randn(2, n, WIDTH)
        module.zero_grad(), there.zero_grad()
        y = marked(x.to("tpu")).requires_grad_()
        compiled(y).square().mean().backward()
        x.requires_grad_()
        module(x).square().mean().backward()
        compare([y.grad, *(p.grad for p in there.parameters())], [x.grad, *(p.grad for p in module.parameters())], f"{name} of length {n}")
    return 2


@pytest.mark.parametrize("name", [*FUNCTIONS, *FUNCTIONS_OF_TWO, *(f"{m} backward" for m in MODULES)])
def test_one_program_serves_every_length(name, finished):
    output = finished[name]
    assert output == "ok", output


@pytest.fixture(scope="module")
def finished():
    environment = {**os.environ, "TORCH_TPU_INTERNAL_BOUNDED_SIZES": "poison"}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


if __name__ == "__main__":
    for case in [*FUNCTIONS, *FUNCTIONS_OF_TWO, *(f"{m} backward" for m in MODULES)]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        counters.clear()
        try:
            run = run_module if case.endswith("backward") else run_function_of_two if case in FUNCTIONS_OF_TWO else run_function
            wanted = run(case.removesuffix(" backward"))
            made = counters["tpu"]["programs"]
            result = "ok" if made == wanted else f"{made} programs instead of {wanted}"
        except Exception as error:  # noqa: BLE001 - told by the test
            result = f"{type(error).__name__} {error}".replace("\n", " ")[:600]
        print(f"{case}: {result}", flush=True)
