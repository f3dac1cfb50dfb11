"""torch.compile(backend="tpu"): compiled functions give what the same functions give eagerly on the CPU.

Each graph runs three times: results, gradients and what was written to the arguments are compared each time.
"""

import functools

import pytest
import torch
import torch.nn.functional as F
from conftest import compiled
from host_operator import on_the_host
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_leaves, tree_map

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def wave(*sizes, dtype=torch.float32, shift=0.0):
    n = functools.reduce(lambda a, b: a * b, sizes, 1)
    return (torch.arange(n, dtype=torch.float64) * 0.7 + shift).sin().reshape(sizes).to(dtype)


def G(*sizes, **kw):
    """An argument with a gradient."""
    return wave(*sizes, **kw).requires_grad_()


def moved(value, device):
    """A copy of the arguments on a device; views of one tensor stay views of one tensor, and layouts stay."""
    bases = {}

    def move(t):
        if not isinstance(t, torch.Tensor):
            return t
        storage = t.untyped_storage().data_ptr()
        if storage not in bases or not storage:
            flat = torch.as_strided(t.detach(), (t.untyped_storage().nbytes() // t.itemsize,), (1,), 0)
            bases[storage] = flat.to(device, copy=True)
        return bases[storage].as_strided(t.size(), t.stride(), t.storage_offset()).requires_grad_(t.requires_grad)

    return tree_map(move, value)


def numbers(value):
    return [t.detach().cpu() if isinstance(t, torch.Tensor) else t for t in tree_leaves(value)]


def same(a, b, **tolerance):
    for x, y in zip(numbers(a), numbers(b), strict=True):
        if isinstance(x, torch.Tensor):
            assert x.stride() == y.stride() or not x.numel(), (x.stride(), y.stride())
            torch.testing.assert_close(y, x, equal_nan=True, **({"rtol": 2e-5, "atol": 2e-5} | tolerance))
        else:
            assert x == y


def backward(out):
    scalars = [o.float().sum() for o in tree_leaves(out) if isinstance(o, torch.Tensor) and o.requires_grad]
    if scalars:
        sum(scalars).backward()


def run(fn, args, device, calls=3):
    seen = []
    args = moved(args, device)
    for _ in range(calls):
        out = fn(*args)
        backward(out)
        seen.append((tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, out),
                     [t.detach().clone() for t in tree_leaves(args) if isinstance(t, torch.Tensor)],
                     [t.grad.clone() for t in tree_leaves(args) if isinstance(t, torch.Tensor) and t.is_leaf and t.grad is not None]))
    return seen


# ---- functions of tensors --------------------------------------------------------------------------------------------

CASES = {}


def case(*args):
    def add(fn):
        assert fn.__name__ not in CASES
        CASES[fn.__name__] = (fn, args)
        return fn

    return add


# mutation of arguments


@case(wave(3, 4))
def in_place(x):
    x.mul_(2).add_(1)
    return x.sum()


@case(wave(3, 4), wave(3, 4, shift=1))
def in_place_order(x, y):
    old = x + y
    x.log1p_()
    return old, x * y


@case(wave(4, 4))
def in_place_through_views(x):
    x[0].sin_()
    x.t()[1].mul_(3)
    x.view(-1)[2:7].neg_()
    return x.sum(0)


@case(wave(4, 4))
def returns_the_argument_it_wrote(x):
    x.add_(1)
    return x


@case(wave(4, 4))
def returns_a_view_of_what_it_wrote(x):
    x.add_(1)
    return x[1:3], x.t()


@case(wave(4), wave(4, shift=2))
def swaps(a, b):
    t = a.clone()
    a.copy_(b)
    b.copy_(t)


@case(wave(4), wave(4, shift=2))
def copies_one_into_the_other(a, b):
    a.copy_(b)
    return a + b


@case(wave(6))
def zeroes(x):
    y = x + 1
    x.zero_()
    return y


@case(wave(6))
def fills(x):
    x.fill_(3)
    return x.sum()


@case(wave(4, 5))
def writes_rows(x):
    x[1] = 7
    x[2:, 1] = x[0, 0]
    x[:, 3] += 1
    return x.mean()


@case(wave(5, 3), torch.tensor([0, 2, 2]), wave(3, 3))
def index_put(x, i, v):
    x[i[:2]] = v[:2]
    x.index_add_(0, i, v)
    x.scatter_(0, i[None].expand(2, 3), v[:2])
    return x.sum(1)


@case(wave(4, 4))
def masked_write(x):
    x.masked_fill_(x > 0, -1)
    x.clamp_(min=-0.5)
    return x


@case(torch.arange(6), torch.ones(6, dtype=torch.bool))
def integers_and_booleans_in_place(i, b):
    i.mul_(3).remainder_(4)
    b.logical_xor_(i > 1)
    return i.sum(), b.any()


@case(wave(4, 4).t())
def in_place_on_a_transposed_argument(x):
    x.mul_(2)
    return x.contiguous()


@case(wave(8)[::2])
def in_place_on_a_strided_argument(x):
    x.mul_(2)
    return x + 1


@case([wave(4, 4)[:2]], wave(2, 4))
def in_place_on_a_part(parts, y):
    parts[0].add_(y)
    return parts[0] * 2


@case(*(lambda b: (b, b[1], b.t()))(wave(3, 3)))
def arguments_that_share_memory(base, row, transposed):
    row.add_(10)
    return base * 2, transposed.sum(0)


@case(*(lambda b: (b[:3], b[1:]))(wave(4)))
def overlapping_arguments_are_read(a, b):
    return a * b


@case(*(lambda b: (b[:2], b[2:]))(wave(4)))
def two_halves_are_written(a, b):
    a.add_(1)
    b.mul_(a)
    return a - b


@case(wave(3), wave(3, shift=1))
def out_argument(x, y):
    torch.add(x, y, out=x)
    return torch.mul(x, y)


@case(G(4, 4))
def in_place_on_an_intermediate(x):
    y = x * 2
    y.sigmoid_()
    z = y + 1
    z[0].mul_(3)
    return y, z


@case(G(4, 4), wave(4, 4))
def detached_write(x, state):
    y = x + state
    state.copy_(y.detach().mean(0, keepdim=True).expand(4, 4))
    return y.sum()


@case(torch.zeros(4), torch.ones(4))
def splat_arguments(zeros, ones):
    zeros.add_(ones)
    return zeros * 2 + ones


@case(torch.zeros(3, 3))
def splat_argument_is_read(x):
    return x.exp(), x


@case(torch.empty(4).fill_(2), torch.full((2, 2), 5, dtype=torch.int32))
def full_arguments(x, i):
    return x / 2, i // 2


@case(wave(4))
def resizes_an_intermediate(x):
    y = torch.empty(0, device=x.device)
    torch.mul(x, 2, out=y)
    return y


# results that alias


@case(wave(3, 4))
def returns_its_argument(x):
    return x, x + 1


@case(wave(3, 4))
def returns_views_only(x):
    return x.t(), x[1:], x.view(2, 6), x.unsqueeze(0).expand(2, 3, 4)


@case(G(3, 4))
def returns_views_with_gradients(x):
    y = x * 2
    return y.t(), y[1:], y.view(-1), y


@case(G(3, 4))
def returns_the_same_twice(x):
    y = x.exp()
    return y, y


@case(G(3, 4))
def returns_a_view_of_its_argument_with_gradient(x):
    return x.t(), x.view(-1)[2:]


@case(G(4, 6))
def splits_and_chunks(x):
    a, b = x.split(3, dim=1)
    c = x.chunk(2)
    return a * b, c[0] + c[1], x.unbind(0)[1]


@case(wave(2, 3))
def returns_structures(x):
    return {"a": x + 1, "b": [x * 2, None, 3, "text"], "c": (x.shape[0], x.dtype)}


@case(wave(3))
def returns_nothing(x):
    x.add_(1)


@case(wave(2, 3, 4))
def layouts_of_results(x):
    y = x.permute(2, 0, 1)
    return y * 2, y.contiguous(), torch.empty_like(y).copy_(y), y.clone(), (y + 1).transpose(0, 1)


@case(wave(2, 3, 4, 4).to(memory_format=torch.channels_last))
def channels_last(x):
    return F.relu(x) + 1, F.max_pool2d(x, 2), x.contiguous()


# numbers, sizes, dtypes


@case(wave(3, 4), 3, 0.5, True)
def python_numbers(x, i, f, b):
    return x * i + f if b else x - i


@case(wave(4, 5))
def sizes(x):
    return x.reshape(-1, x.shape[0]).sum(0) / x.numel() + x.size(1)


@case(wave(3), torch.tensor(2.5), torch.tensor(3))
def zero_dim(x, s, i):
    return x * s + i, s * i, (s > 1) & (i == 3)


@case(wave(3, dtype=torch.float16), wave(3, dtype=torch.bfloat16), wave(3, dtype=torch.float64))
def promotes(a, b, c):
    return (a.float() * b).to(torch.float16), a + 1, c * a, b.to(torch.int32)


@case(torch.arange(-3, 4))
def integer_arithmetic(i):
    return i // 2, i % 3, i.float() / 2, i << 1, i.abs().sqrt(), i.to(torch.uint8)


@case(wave(4) + 1j * wave(4, shift=1))
def complex_numbers(z):
    return z * z.conj(), z.real, torch.view_as_real(z), z.abs(), z.conj()


@case(wave(0, 3), wave(3, 0))
def empty_arguments(a, b):
    return a.sum(), b @ a, torch.cat([a, a]), a.mean(0)


@case(wave(4, 4))
def constants(x):
    return x + torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device), x * torch.eye(4, device=x.device), torch.arange(4, device=x.device)


@case(wave(3))
def creates(x):
    z = torch.zeros(3, device=x.device)
    z[1] = 5
    return z + x, torch.ones_like(x), torch.full((2,), 7.0, device=x.device), x.new_zeros(2), torch.linspace(0, 1, 5, device=x.device)


@case(wave(5), wave(5, shift=1))
def comparisons(x, y):
    return torch.where(x > y, x, y), (x == x).all(), torch.maximum(x, y), x.isnan()


# operators


@case(G(4, 6), G(6, 5), G(5))
def linear_layers(x, w, b):
    return F.gelu(torch.addmm(b, x, w)), x.softmax(-1), F.layer_norm(x, (6,))


@case(G(2, 4, 6), G(2, 6, 3))
def batched(x, y):
    return x @ y, torch.einsum("bij,bjk->bik", x, y), torch.baddbmm(x[:, :, :3], x, y)


@case(G(1, 3, 8, 8), G(4, 3, 3, 3), G(4))
def convolution(x, w, b):
    return F.conv2d(x, w, b, padding=1, stride=2), F.avg_pool2d(x, 2)


@case(G(2, 2, 5, 4), G(2, 2, 5, 4), G(2, 2, 5, 4))
def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@case(G(7, 4), torch.tensor([[1, 3, 0], [6, 6, 2]]))
def embedding(w, i):
    return F.embedding(i, w).sum(1)


@case(G(4, 5), torch.tensor([1, 4, 0, 2]))
def cross_entropy(x, t):
    return F.cross_entropy(x, t), F.nll_loss(x.log_softmax(1), t, reduction="sum")


@case(G(4, 6))
def reductions(x):
    return x.sum(1), x.var(0), x.amax(1), x.norm(), x.logsumexp(1), x.prod(0), x.std()


@case(wave(4, 6))
def sorting(x):
    return x.sort(1), x.topk(2), x.argmax(1), x.median(1).values, x.kthvalue(2).values, x.cummax(0)


@case(G(4, 6))
def shapes_of_all_kinds(x):
    return torch.cat([x, x * 2], 1), torch.stack([x, x]), x.flip(0), x.roll(1, 1), x.repeat(2, 1), F.pad(x, (1, 2)), x.tril()


@case(G(4, 6), torch.tensor([3, 0, 1]))
def gathers(x, i):
    return x[i], x.index_select(1, i), x.gather(0, i[None].expand(2, 3)), x[i, i + 1], x.take(i)


@case(G(4, 4))
def scans(x):
    return x.cumsum(0), x.cumprod(1), x.diff(dim=0)


@case(G(3, 3))
def linear_algebra(x):
    a = x @ x.t() + 3 * torch.eye(3, device=x.device)
    return torch.linalg.cholesky(a), torch.linalg.solve(a, x), torch.linalg.det(a)


@case(G(3, 4))
def unary_functions(x):
    return x.exp(), x.tanh(), (x + 2).log(), x.abs().sqrt(), F.silu(x), F.softplus(x), x.erf(), (x + 2).rsqrt()


@case(wave(3, 4), wave(3, 4, shift=1))
def lists(x, y):
    torch._foreach_add_([x, y], [y * 2, x - 1], alpha=2)
    torch._foreach_mul_([x, y], 0.5)
    return torch._foreach_sqrt(torch._foreach_abs([x, y]))


@case(wave(2, 3), wave(2, 3, shift=1))
def data_pointers_stay(x, y):
    return x.data_ptr() == x.view(-1).data_ptr(), x + y


# autograd


@case(G(3, 4))
def detach_and_no_grad(x):
    with torch.no_grad():
        s = x.mean()
    return x * s + x.detach().exp()


@case(G(3, 4), wave(3, 4))
def mixed_requires_grad(x, y):
    return x * y, y * 2


@case(G(3, 4))
def unused_gradient(x):
    y = x * 2
    return y.sum(), x.detach() * 3


@case(G(4), G(4, shift=1))
def twice_used(x, y):
    z = x * y
    return z * z + x, z.sum() * y


@case(G(4, 4))
def saves_its_argument(x):
    return x.pow(3).sum() + x.t().sin().sum()


@case(G(3, 4))
def gradient_of_a_view(x):
    y = x.t()[1:]
    return (y * y).sum()


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x * x


@case(G(3))
def own_autograd_function(x):
    return Cube.apply(x) + 1


@case(G(4, 4))
def checkpointed(x):
    return torch.utils.checkpoint.checkpoint(lambda t: (t @ t).sin().exp(), x, use_reentrant=False).sum()


@case(G(4, 4), G(4, 4, shift=1))
def functional_transforms(x, y):
    return torch.func.grad(lambda t: (t * y).sin().sum())(x), torch.vmap(lambda a, b: a @ b)(x, y)


# autocast


@case(G(4, 6), G(6, 4))
def autocast(x, w):
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        y = x @ w
    return y.float() * 0 + y.dtype.itemsize, (x @ w).sum()


# the host


@case(G(4))
def graph_break(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y + x


@case(wave(4))
def branches_on_data(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@case(wave(4))
def reads_a_number(x):
    n = int(x.abs().sum().item())
    return x * n


@case(wave(6))
def prints(x):
    y = x + 1
    str(y.sum().item())
    return y.exp()


@case(wave(6))
def boolean_mask(x):
    return x[x > 0] * 2, (x > 0).nonzero()


@case(wave(3), torch.tensor(2.0))
def number_on_the_cpu(x, s):
    return x * s.cpu()


@case(wave(3))
def to_the_cpu(x):
    y = (x * 2).cpu()
    return (y + 1).to(x.device) * x


@case(wave(5, 5))
def without_a_lowering(x):
    return on_the_host(x @ x.t()).sum() + x.sum()


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    fn, args = CASES[name]
    may_split = name in ("linear_algebra", "boolean_mask", "to_the_cpu", "without_a_lowering", "number_on_the_cpu", "reads_a_number")
    same(run(fn, args, "cpu"), run(compiled(fn), args, "tpu"))
    if not may_split:
        assert counters["tpu"]["splits"] == 0
        assert counters["tpu"]["interpreted"] == 0


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("data_pointers_stay",)])
def test_case_with_dynamic_sizes(name):
    fn, args = CASES[name]
    same(run(fn, args, "cpu"), run(compiled(fn, dynamic=True), args, "tpu"))
