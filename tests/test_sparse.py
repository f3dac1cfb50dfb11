"""Sparse tensors on the device: COO and the compressed layouts give what the CPU gives, natively or by the CPU."""

import pytest
import torch
from conftest import assert_same, to_device

COMPRESSED = [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]


@pytest.fixture(autouse=True)
def fallback():
    with torch.tpu.set_cpu_fallback("silent"):
        yield


def parts(t):
    """A sparse tensor as dense ones."""
    if not isinstance(t, torch.Tensor) or t.layout == torch.strided:
        return t
    if t.layout == torch.sparse_coo:
        return [t._indices(), t._values(), torch.tensor(t.shape), t.is_coalesced()]
    rows = t.layout in (torch.sparse_csr, torch.sparse_bsr)
    return [t.crow_indices() if rows else t.ccol_indices(), t.col_indices() if rows else t.row_indices(), t.values(), torch.tensor(t.shape)]


def check(function, *args, **tolerance):
    """As conftest's, for sparse arguments and results: the device's own tensors are made of the same parts."""
    expected, actual = function(*args), function(*to_device(list(args)))
    for a, e in zip(*([r if isinstance(r, list | tuple) else [r] for r in (actual, expected)]), strict=True):
        if isinstance(e, torch.Tensor):
            assert a.device.type == "tpu" and a.layout == e.layout and a.requires_grad == e.requires_grad
        assert_same(parts(a.detach() if isinstance(a, torch.Tensor) else a), parts(e.detach() if isinstance(e, torch.Tensor) else e), **tolerance)


def coo(dtype=torch.float32):
    """3 x 4 with one place named twice."""
    indices = torch.tensor([[0, 2, 1, 2, 0], [1, 3, 0, 3, 0]])
    return torch.sparse_coo_tensor(indices, torch.tensor([1.0, -2, 3, 4, 0.5]).to(dtype), (3, 4))


DENSE = torch.tensor([[0.0, 2, 0, -1], [0, 0, 0, 0], [3, 0, 0.5, 0]])


@pytest.mark.usefixtures("native")
def test_made_moved_and_printed():
    i, v = torch.tensor([[0, 2], [1, 3]]), torch.tensor([1.0, 2.0])
    check(lambda i, v: torch.sparse_coo_tensor(i, v, (3, 4)), i, v)
    check(lambda i, v: torch.sparse_csr_tensor(torch.tensor([0, 1, 1, 2], device=i.device), i[1], v, (3, 4)), i, v)
    t = coo().to("tpu")
    assert t.is_sparse and t._nnz() == 5 and t.sparse_dim() == 2 and t.dense_dim() == 0 and not t.is_coalesced()
    assert_same(parts(t.cpu()), parts(coo()))
    assert "sparse_coo" in repr(t) and "tpu" in repr(t)
    csr = DENSE.to_sparse_csr()
    assert_same(parts(csr.to("tpu").cpu()), parts(csr))
    assert torch.empty(2, 3, layout=torch.sparse_coo, device="tpu")._nnz() == 0
    check(lambda t: t.clone(), coo())
    check(lambda t: t.double(), coo())


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_coalesce_and_to_dense(dtype):
    check(lambda t: t.coalesce(), coo(dtype))
    check(lambda t: t.to_dense(), coo(dtype))
    check(lambda t: t.coalesce().indices(), coo(dtype))
    hybrid = torch.sparse_coo_tensor(torch.tensor([[1, 0, 1]]), torch.arange(6).view(3, 2).to(dtype), (3, 2))
    check(lambda t: t.coalesce(), hybrid)
    check(lambda t: t.to_dense(), hybrid)
    for empty in (torch.sparse_coo_tensor((3, 4)), torch.sparse_coo_tensor(torch.zeros(1, 0).long(), torch.zeros(0, 2), (3, 2))):
        check(lambda t: t.coalesce(), empty)
        check(lambda t: t.to_dense(), empty)
    three = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1, 0], [2, 0, 0, 2], [1, 1, 1, 1]]), torch.tensor([1, 2, 3, 4]).to(dtype), (2, 3, 2))
    check(lambda t: t.coalesce(), three)


@pytest.mark.usefixtures("native")
def test_to_sparse():
    check(lambda x: x.to_sparse(), DENSE)
    check(lambda x: x.to_sparse(1), DENSE)
    check(lambda x: x.to_sparse(), torch.zeros(2, 3))


@pytest.mark.parametrize("layout", COMPRESSED)
def test_compressed_layouts(layout):
    options = {"blocksize": (1, 2)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
    check(lambda x: x.to_sparse(layout=layout, **options), DENSE)
    t = DENSE.to_sparse(layout=layout, **options)
    check(lambda t: t.to_dense(), t)
    check(lambda t: t.clone(), t)
    check(lambda t: t.to_sparse(), t)
    check(lambda t: t * 2, t)
    check(lambda t: t.abs(), t)


@pytest.mark.usefixtures("native")
def test_products_with_dense_matrices():
    dense, bias = torch.randn(4, 5), torch.randn(3, 5)
    for t in (coo(), coo().coalesce(), coo().coalesce().to_sparse_csr(), torch.sparse_coo_tensor((3, 4))):
        check(lambda t, d: torch.mm(t, d), t, dense)
        check(lambda t, d: t @ d, t, dense)
        check(lambda b, t, d: torch.addmm(b, t, d, beta=0.5, alpha=2), bias, t, dense)
    check(torch.sparse.mm, coo(), dense)
    check(torch.sparse.addmm, bias, coo(), dense)


@pytest.mark.usefixtures("native")
def test_products_that_csr_matrices_have():
    t, a, b = coo().coalesce().to_sparse_csr(), torch.randn(3, 2), torch.randn(2, 4)
    check(lambda t, a, b: torch.sparse.sampled_addmm(t, a, b, beta=0.5, alpha=2), t, a, b)
    check(lambda t, a, b: torch.sparse.sampled_addmm(t, a, b, beta=0), t, a, b)
    reduced = torch.ops.aten._sparse_mm_reduce_impl
    ties = torch.tensor([[1.0, 0, 2, 3], [0, 0, 0, 0], [-1, -1, 0, 0]]).to_sparse_csr()
    dense = torch.tensor([[1.0, 2], [1, 2], [0.5, 5], [1 / 3, 0]])
    for reduce in ("sum", "mean", "amax", "amin"):
        check(lambda t, d: reduced(t, d, reduce), ties, dense)
        check(lambda t, d: [r.detach() for r in reduced(t, d.requires_grad_(), reduce)], ties, dense)


@pytest.mark.usefixtures("native")
def test_mask():
    check(lambda x, m: x.sparse_mask(m), torch.randn(3, 4), coo().coalesce())


def test_gradients():
    def gradients(function, *args):
        args = [a.detach().requires_grad_() for a in args]
        return torch.autograd.grad(function(*args).sum(), args)

    dense = torch.randn(4, 5)
    check(lambda t, d: gradients(lambda t, d: torch.sparse.mm(t, d) ** 2, t, d), coo().coalesce(), dense)
    check(lambda x: gradients(lambda x: x.to_sparse().to_dense() ** 2, x), DENSE)
    check(lambda v: gradients(lambda v: torch.sparse_coo_tensor(torch.tensor([[0, 2], [1, 3]], device=v.device), v, (3, 4)).to_dense() ** 2, v),
          torch.tensor([1.0, 2.0]))


UNARY = ["abs", "asin", "atan", "ceil", "erf", "expm1", "floor", "log1p", "neg", "relu", "round", "sgn", "sign", "sin", "sqrt", "tan", "tanh",
         "trunc", "isnan", "isinf", "deg2rad"]


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("name", UNARY)
def test_unary_of_values(name):
    x = DENSE.abs() / 4
    for t in (x.to_sparse(), x.to_sparse_csr()):
        check(lambda t: getattr(t, name)(), t)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b, d: a + a,
        lambda a, b, d: a * b,
        lambda a, b, d: a - b,
        lambda a, b, d: a / 2,
        lambda a, b, d: a * 3,
        lambda a, b, d: d + a,
        lambda a, b, d: d.clone().add_(a),
        lambda a, b, d: d * a,
        lambda a, b, d: a.clone().mul_(2),
        lambda a, b, d: a.clone().add_(b),
        lambda a, b, d: a.t(),
        lambda a, b, d: a.transpose(0, 1),
        lambda a, b, d: torch.cat([a, b]),
        lambda a, b, d: a[0],
        lambda a, b, d: a.index_select(1, torch.tensor([0, 3], device=a.device)),
        lambda a, b, d: torch.sparse.sum(a),
        lambda a, b, d: torch.sparse.sum(a, 0),
        lambda a, b, d: torch.sparse.softmax(a, 1),
        lambda a, b, d: torch.sparse.log_softmax(a, 0),
        lambda a, b, d: torch.sparse.mm(a, b.t()),
        lambda a, b, d: torch.sparse.mm(a.t(), d),
        lambda a, b, d: d.t() @ a,
        lambda a, b, d: a.norm(),
        lambda a, b, d: a.sum(),
        lambda a, b, d: a ** 2,
        lambda a, b, d: torch.mv(a, d[0]),
        lambda a, b, d: torch.hspmm(a, d.t()),
        lambda a, b, d: a.unsqueeze(0),
        lambda a, b, d: a.narrow_copy(0, 1, 2),
        lambda a, b, d: torch.bmm(a.unsqueeze(0), d.t().unsqueeze(0)),
        lambda a, b, d: torch.smm(a, d.t()),
        lambda a, b, d: a.clone().zero_(),
        lambda a, b, d: torch.sparse.spdiags(d[:1], torch.tensor([1]), (3, 4)).to(d.device),
        lambda a, b, d: torch.stack([a, b]),
        lambda a, b, d: a.bool().any(),
        lambda a, b, d: torch.zeros_like(a),
        lambda a, b, d: torch.empty_like(a).copy_(b),
        lambda a, b, d: a.to_sparse_csr() + b.to_sparse_csr(),
        lambda a, b, d: a.to_sparse_csr() @ d.t(),
        lambda a, b, d: a.to_sparse_csr() @ b.t().to_sparse_csr(),
        lambda a, b, d: d.t() @ a.to_sparse_csr(),
        lambda a, b, d: a.to_sparse_csr() @ d[0],
        lambda a, b, d: torch.addmm(d @ d.t(), a.to_sparse_csr(), d.t()),
        lambda a, b, d: torch.sparse.sampled_addmm(a.to_sparse_csr(), d, torch.ones(4, 4, device=d.device)),
        lambda a, b, d: torch.sparse.mm(a.to_sparse_csr(), d.t(), "mean"),
        lambda a, b, d: torch.sparse.mm(a.to_sparse_csr(), d.t(), "amax"),
        lambda a, b, d: a.to_sparse_csr()[1],
        lambda a, b, d: a.to_sparse_csr().sum(),
        lambda a, b, d: torch.nn.functional.linear(d, b.to_sparse_csr()),
        lambda a, b, d: a.to_sparse_csr().to_sparse_csc(),
        lambda a, b, d: d.to_sparse_bsr((3, 2)),
    ],
)
def test_operators(function):
    other = torch.tensor([[0.0, 1, 2, 0], [0, 0, 5, 0], [1, 0, 0, 3]]).to_sparse()
    check(function, coo().coalesce(), other, DENSE)


def test_out_arguments_and_inplace_writes_reach_the_tensor():
    out = torch.empty(3, 5, device="tpu")
    dense = torch.randn(4, 5)
    torch.mm(coo().to("tpu"), dense.to("tpu"), out=out)
    assert_same(out, coo() @ dense)
    t, cpu = coo().coalesce().to("tpu"), coo().coalesce()
    for x in (t, cpu):
        x.mul_(x)
    assert_same(parts(t), parts(cpu))
    torch.add(t, t, out=t)
    torch.add(cpu, cpu, out=cpu)
    assert_same(parts(t.coalesce()), parts(cpu.coalesce()))


def test_what_runs_on_the_cpu_is_counted_and_can_be_refused():
    a = coo().coalesce().to("tpu")
    with torch.tpu.set_cpu_fallback("error"), pytest.raises(NotImplementedError, match="It can run on the CPU instead"):
        torch.sparse.softmax(a, 1)


def test_embedding_with_sparse_gradients():
    table, index = torch.randn(6, 3), torch.tensor([1, 4, 1])

    def step(table, index):
        table = table.detach().clone().requires_grad_()
        torch.nn.functional.embedding(index, table, sparse=True).pow(2).sum().backward()
        torch.optim.SGD([table], lr=0.1).step()
        return [table.grad.coalesce(), table.detach()]

    check(step, table, index)
