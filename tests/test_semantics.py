"""Views, writes in place, out= and storages: what the CPU returns, raises and warns of, in every mode."""

import numpy
import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE
from semantics import numbers as A
from semantics import outcome

DEFER, NEVER = torch.tpu.EagerMode.DEFER_AND_FUSE, torch.tpu.EagerMode.DEFER_NEVER


@pytest.fixture(params=[NEVER, DEFER], ids=["strict", "defer"])
def mode(request):
    with torch.tpu.set_eager_mode(request.param):
        yield


def same(function):
    assert outcome(function, DEVICE) == outcome(function, "cpu")


def C(device, *shape):
    return torch.complex(A("cpu", *shape), A("cpu", *shape) + 0.5).to(device)


def at(x, *index):
    return torch.tensor(index or (0,), device=x.device)


def inference(x):
    with torch.inference_mode():
        return x.clone()


def view_without_grad(x):
    base = x.clone().requires_grad_() * 1
    with torch.no_grad():
        return base[:]


# ---- writing in place: onto what ------------------------------------------------------------------------------------

IN_PLACE = {
    "add": lambda x: x.add_(1), "mul": lambda x: x.mul_(x), "zero": lambda x: x.zero_(), "fill": lambda x: x.fill_(1),
    "copy": lambda x: x.copy_(x.clone()), "set_item": lambda x: x.__setitem__(0, 1.0), "relu": lambda x: x.relu_(),
    "scatter": lambda x: x.scatter_(0, at(x), 1.0), "scatter_add": lambda x: x.scatter_add_(0, at(x), x[:1].clone()),
    "index_copy": lambda x: x.index_copy_(0, at(x), x[:1].clone()), "index_add": lambda x: x.index_add_(0, at(x), x[:1].clone()),
    "put": lambda x: x.put_(at(x), x[:1].clone()), "masked_scatter": lambda x: x.masked_scatter_(x > 0, x.clone()),
    "clamp": lambda x: x.clamp_(0, 1), "addcmul": lambda x: x.addcmul_(x, x), "cumsum": lambda x: x.cumsum_(0),
    "elu": lambda x: F.elu_(x), "silu": lambda x: F.silu(x, inplace=True), "eq": lambda x: x.eq_(1), "t": lambda x: x.t_(),
    "detach": lambda x: x.detach_(), "fmod": lambda x: x.fmod_(2), "foreach": lambda x: torch._foreach_add_([x], 1),
    "foreach_lists": lambda x: torch._foreach_mul_([x], [x.clone()]),
}  # fmt: skip
TARGETS = {
    "whole": lambda x: x, "expanded": lambda x: x[:1].expand(3), "leaf": lambda x: x.requires_grad_(), "inference": inference,
    "leaf_view": lambda x: x.requires_grad_()[:], "no_grad_view": view_without_grad, "strided": lambda x: x[::2],
    "unbound": lambda x: (torch.stack([x, x]).requires_grad_() * 1).unbind()[0],
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_writes_in_place(target, mode):
    for name, write in IN_PLACE.items():
        def run(device, write=write):
            x = A(device, 3)
            y = TARGETS[target](x)
            return write(y), y, x if target != "inference" else None
        assert outcome(run, DEVICE) == outcome(run, "cpu"), name


# ---- out= -----------------------------------------------------------------------------------------------------------

OUT = {
    "add": lambda a, o: torch.add(a, 1, out=o), "mul": lambda a, o: torch.mul(a, a, out=o), "lt": lambda a, o: torch.lt(a, 2, out=o),
    "gather": lambda a, o: torch.gather(a, 0, at(a, 0, 1, 2), out=o), "copy": lambda a, o: o.copy_(a),
    "index_select": lambda a, o: torch.index_select(a, 0, at(a, 0, 1, 2), out=o), "take": lambda a, o: torch.take(a, at(a, 0, 1, 2), out=o),
    "scatter": lambda a, o: o.scatter_(0, at(a, 0, 1, 2), a), "index_put": lambda a, o: o.index_put_((at(a, 0, 1, 2),), a),
    "index_copy": lambda a, o: o.index_copy_(0, at(a, 0, 1, 2), a), "index_add": lambda a, o: o.index_add_(0, at(a, 0, 1, 2), a),
    "put": lambda a, o: o.put_(at(a, 0, 1, 2), a), "masked_fill": lambda a, o: o.masked_fill_(a > 2, 0.0),
    "addcdiv": lambda a, o: o.addcdiv_(a, a), "sum": lambda a, o: torch.sum(a.view(3, 1) / 2, 1, out=o),
    "cumsum": lambda a, o: torch.cumsum(a / 2, 0, out=o), "prod": lambda a, o: torch.prod(a.view(3, 1) / 2, 1, out=o),
}  # fmt: skip
OUTPUTS = {
    "partial_overlap": lambda x: (x[:3], x[1:4]), "full_overlap": lambda x: (x[:3], x[:3]), "apart": lambda x: (x[:3], x[5:8]),
    "wrong_shape": lambda x: (x[:3].clone(), x[:7].clone()), "strided": lambda x: (x[:3], x[3::2]),
    "requires_grad": lambda x: (x[:3].clone(), x[5:8].clone().requires_grad_()),
    "inference": lambda x: (x[:3], inference(x[5:8])), "argument_requires_grad": lambda x: (x[:3].clone().requires_grad_(), x[5:8]),
    "int": lambda x: (x[:3], x[5:8].long()),
}  # fmt: skip


@pytest.mark.parametrize("output", OUTPUTS)
def test_out(output, mode):
    for name, write in OUT.items():
        if output == "wrong_shape" and not name.startswith(("add", "mul", "gather", "take")):
            continue
        def run(device, write=write):
            x = A(device, 8)
            a, o = OUTPUTS[output](x)
            return write(a, o), x
        assert outcome(run, DEVICE) == outcome(run, "cpu"), name


# ---- indexing ---------------------------------------------------------------------------------------------------------

KEYS = {
    "int": lambda d: -1, "slice": lambda d: slice(None, None, 2), "ellipsis": lambda d: ..., "none": lambda d: None,
    "tuple": lambda d: (0, 1), "mask": lambda d: A(d, 3, 3) > 4, "rows": lambda d: torch.tensor([True, False, True], device=d),
    "indices": lambda d: torch.tensor([0, 2], device=d), "pairs": lambda d: (torch.tensor([0, 2], device=d),) * 2,
    "columns": lambda d: (..., torch.tensor([0, 2], device=d)), "list": lambda d: [-1, 0], "true": lambda d: True,
    "false": lambda d: False, "scalar": lambda d: torch.tensor(1, device=d), "empty": lambda d: [], "numpy": lambda d: numpy.int64(1),
    "outside": lambda d: 5, "too_many": lambda d: (0, 0, 0), "float": lambda d: 1.5, "wrong_mask": lambda d: torch.tensor([True], device=d),
    "new_axis": lambda d: (None, torch.tensor([0, 2], device=d)), "bytes": lambda d: torch.tensor([1, 0, 1], dtype=torch.uint8, device=d),
}  # fmt: skip
VALUES = {
    "number": lambda d: 7, "scalar": lambda d: torch.tensor(7.0, device=d), "cpu_scalar": lambda d: torch.tensor(7.0),
    "row": lambda d: A(d, 3) * 10, "bool": lambda d: True, "row_of_ints": lambda d: A(d, 2, 3).long(),
}  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_indexing(key, mode):
    same(lambda d: A(d, 3, 3)[KEYS[key](d)])
    for name, value in VALUES.items():
        def run(device, value=value):
            x = A(device, 3, 3)
            x[KEYS[key](device)] = value(device)
            return x
        if key == "bytes" and name != "row":  # the CPU refuses to fill by such a mask
            continue
        assert outcome(run, DEVICE) == outcome(run, "cpu"), name


# ---- views and storages -------------------------------------------------------------------------------------------------

def growing(d):
    x = A(d, 4, 3)
    v = x[2:]
    v.resize_(3, 4)
    x.add_(1)
    return x, v.view(-1)[:6], v.shape, x.untyped_storage().nbytes(), v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def written_bytes(d):
    x = A(d, 3)
    x.untyped_storage()[3] = 64
    y, z = A(d, 3), A(d, 3)
    y.untyped_storage().fill_(0)
    z.untyped_storage().copy_((A("cpu", 3) * 5).untyped_storage())
    return x, y, z


def same_address(d):
    x = A(d, 4, 4)
    address = x.data_ptr()
    x.add_(1)
    torch.mul(x, 2, out=x)
    x[0] = 3
    return x.data_ptr() == address, x[1:, 2].data_ptr() - address, x.view(torch.int16).data_ptr() == address, x[4:].data_ptr()


def aliases(d):
    x = A(d, 4)
    return [torch._C._is_alias_of(x, y) for y in (x[1:], A(d, 4), x.view(torch.int32))], x[1:]._base is x, x[:].is_set_to(x)


def parts(d):
    x = C(d, 3)
    x.real.mul_(2)
    x.imag[1] = 0
    x.imag = A(d, 3)
    return x, x.real, x.imag


def through_conj(d):
    x = C(d, 3)
    y = x.conj()
    y.add_(1j)
    y[0] = 2 + 3j
    return x, y, y.conj(), y.resolve_conj(), y.conj_physical(), y.imag, y * 2, y.clone()


def chained(d):
    x = A(d, 4, 3, 2).requires_grad_()
    y = x * 1
    y.narrow(0, 1, 2).select(1, 1).diagonal().mul_(10)
    y.unflatten(0, (2, 2))[:, 1].transpose(0, -1).add_(1)
    y.sum().backward()
    return x.grad, y


def set_to(d, *where):
    x = A(d, 3, 4)
    y = torch.empty(0, device=d).set_(x.untyped_storage(), *where)
    y.mul_(2)
    return x, y, y.data_ptr() - x.data_ptr()


def versions(d):
    x = A(d, 4)
    steps = [
        lambda: x.add_(1), lambda: torch.add(x, 1, out=x), lambda: x.data.add_(1), lambda: x.detach().add_(1), lambda: x.resize_(2),
        lambda: x.set_(A(d, 2)), lambda: x.__setitem__(0, 1), lambda: x.t_(), lambda: x.unsqueeze_(0), lambda: x.zero_(),
        lambda: torch._foreach_add_([x], 1), lambda: torch._foreach_copy_([x], [x + 1]), lambda: x.as_strided_((1,), (1,)),
    ]  # fmt: skip
    return [(step() is None, x._version) for step in steps]


VIEWS = [
    growing, written_bytes, same_address, aliases, parts, through_conj, chained, versions,
    lambda d: A(d, 4, 4)[1, 1:3].as_strided((3, 2), (4, 1), 0), lambda d: A(d, 4).as_strided((3, 2), (4, 1), 0),
    lambda d: A(d, 4).as_strided((2,), (-1,), 3), lambda d: set_to(d), lambda d: set_to(d, 2, (2, 3), (4, 1)),
    lambda d: set_to(d, 0, (4,), (-1,)), lambda d: A(d, 2).set_(A(d, 2).long()), lambda d: A(d, 6).resize_(-1),
    lambda d: A(d, 24).resize_((1, 2, 3, 4), memory_format=torch.channels_last), lambda d: A(d, 6).requires_grad_().resize_(3),
    lambda d: A(d, 7).unfold(0, 3, 2), lambda d: A(d, 7).unfold(0, 8, 1), lambda d: A(d, 4)[::-1], lambda d: A(d, 3).imag,
    lambda d: torch.view_as_real(C(d, 3).conj()), lambda d: torch.view_as_complex(A(d, 7)[1:].view(3, 2)),
    lambda d: torch.view_as_complex(A(d, 3, 3)), lambda d: C(d, 3).conj().view(torch.float32), lambda d: A(d, 4, 3).t().view(12),
    lambda d: A(d, 1).expand(3).zero_(), lambda d: A(d, 1).expand(2, 3).fill_(7), lambda d: A(d, 2) & A(d, 2).long(),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_views_and_storages(number, mode):
    actual, expected = outcome(VIEWS[number], DEVICE), outcome(VIEWS[number], "cpu")
    if "not implemented for" in str(expected):
        assert "not implemented for" in str(actual)
    else:
        assert actual == expected


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8, torch.float64, torch.complex64, torch.bool, torch.bfloat16])
def test_views_of_another_dtype(dtype, mode):
    for x in (lambda d: A(d, 4, 4), lambda d: A(d, 4, 3), lambda d: A(d, 4, 4).t(), lambda d: A(d, 4, 6)[::2, :4],
              lambda d: A(d, 4, 4).view(-1)[1:5], lambda d: A(d, 1)[0], lambda d: A(d, 4).requires_grad_()):  # fmt: skip
        same(lambda d, x=x: x(d).view(dtype))

    def write(d):
        x = A(d, 2, 4)
        x.view(dtype)[0].zero_()
        return x

    same(write)


SPLITS = {
    "split": lambda x: x.split(1), "chunk": lambda x: x.chunk(2), "unbind": lambda x: x.unbind(), "hsplit": lambda x: x.hsplit(2),
    "unsafe_split": lambda x: x.unsafe_split(1), "split_copy": lambda x: torch.split_copy(x, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", SPLITS)
def test_writes_to_one_of_several_views(name, mode):
    def run(d, needs_grad):
        x = A(d, 2, 2).requires_grad_(needs_grad) * 1
        part = SPLITS[name](x)[0]
        part.mul_(2)
        return x, part

    same(lambda d: run(d, True))
    same(lambda d: run(d, False))


NUMBERS = {
    "fill_": lambda x, n: x.fill_(n),
    "fill_ a part": lambda x, n: x[1:].fill_(n),
    "an element": lambda x, n: x.__setitem__(0, n),
    "a mask": lambda x, n: x.__setitem__(x == 0, n),
    "indices": lambda x, n: x.__setitem__(at(x), n),
    "masked_fill": lambda x, n: x.masked_fill(x == 0, n),
    "index_fill_": lambda x, n: x.index_fill_(0, at(x), n),
    "scatter_": lambda x, n: x.scatter_(0, at(x), n),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
    "where": lambda x, n: torch.where(x == 0, x, n),
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype, device=x.device),
    "full of one": lambda x, n: torch.full((), n, dtype=x.dtype, device=x.device),
    "full of none": lambda x, n: torch.full((0, 2), n, dtype=x.dtype, device=x.device),
    "clamp": lambda x, n: x.clamp(n, None) if x.dtype != torch.bool else x,
    "pow": lambda x, n: x.pow(n) if x.dtype == torch.int8 else x,
    "lerp": lambda x, n: x.lerp(x + 1, n) if x.is_floating_point() else x,
    "addcmul": lambda x, n: x.addcmul(x, x, value=n) if x.dtype != torch.bool else x,
    "alpha": lambda x, n: torch.add(x, x, alpha=n) if isinstance(n, int) and x.dtype != torch.bool else x,
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.float16, torch.float32, torch.complex64], ids=str)
def test_numbers_for_elements(dtype, name, mode):
    """Half is true; what the dtype has no value for is refused, or made infinite."""
    half = dtype == torch.float16
    numbers = [0.5, -1.5, 300, -2, 127.5, 255.5, True, float("inf")]
    if not half or name not in ("lerp", "addcmul"):
        numbers += [70000] if name == "clamp" else [70000, 1e39]
    numbers += [1 + 0j, 1 + 2j] if not half and name in ("fill_", "fill_ a part", "lerp", "addcmul", "scatter_") else []
    for number in numbers:

        def run(device, number=number):
            x = torch.tensor([0, 1, 2, 3], dtype=dtype, device=device)
            result = NUMBERS[name](x, number)
            return x, result

        same(run)


@pytest.mark.parametrize("shapes", [((0, 2), (2, 3)), ((2, 0), (0, 3)), ((1, 0, 2), (1, 2, 3)), ((2, 0), (0,))], ids=str)
def test_products_of_bools_without_elements(shapes, mode):
    same(lambda device: torch.matmul(*(A(device, *shape).bool() for shape in shapes)))


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide", "true_divide", "gcd", "pow", "bitwise_right_shift", "maximum", "mul"])
def test_integers_without_elements(name, mode):
    function = getattr(torch, name)
    for shape in ((0,), (0, 2), (2, 0, 3)):
        same(lambda device, shape=shape: function(A(device, *shape, dtype=torch.int64), A(device, *shape, dtype=torch.int64)))
    same(lambda device: torch.div(A(device, 0, dtype=torch.int32), A(device, 0, dtype=torch.int32), rounding_mode="trunc"))
    for number in (0, 1):
        same(lambda device, number=number: function(A(device, 0, 2, dtype=torch.int64), number))


# ---- copies with something written into them: their layouts -------------------------------------------------------------

WRITTEN_INTO = {
    "index_fill": lambda x: x.index_fill(0, at(x), 1.0), "index_fill a tensor": lambda x: x.index_fill(0, at(x), A(x.device, 1)[0]),
    "index_add": lambda x: x.index_add(0, at(x), x[:1] * 2), "index_copy": lambda x: x.index_copy(0, at(x), x[:1] * 2),
    "index_reduce": lambda x: x.index_reduce(0, at(x), x[:1] * 2, "amax"), "index_put": lambda x: x.index_put((at(x),), A(x.device, 1)[0]),
    "scatter": lambda x: x.scatter(0, x.to(torch.int64) * 0, 1.0), "scatter_add": lambda x: x.scatter_add(0, x.to(torch.int64) * 0, x),
    "masked_fill": lambda x: x.masked_fill(x > 3, 1.0), "masked_scatter": lambda x: x.masked_scatter(x > 3, x.clone()),
    "put": lambda x: x.put(at(x), A(x.device, 1)), "slice_scatter": lambda x: x.slice_scatter(A(x.device, 1, *x.shape[1:]), 0, 0, 1),
    "select_scatter": lambda x: x.select_scatter(A(x.device, *x.shape[1:]), 0, 0), "copy": lambda x: torch.ops.aten.copy(x, x * 2),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x.diagonal() * 2), "fill": lambda x: torch.fill(x, 2.0),
    "as_strided_scatter": lambda x: x.as_strided_scatter(A(x.device, 2), (2,), (3,), 1),
}  # fmt: skip
LAYOUTS = {
    "whole": lambda x: x, "part": lambda x: x[1:], "transposed": lambda x: x.transpose(0, 2), "gaps": lambda x: x[:, ::2].transpose(0, 2),
    "diagonal": lambda x: x.diagonal(), "expanded": lambda x: x[:1].expand(2, 3, 4), "channels_last": lambda x: x[None].permute(0, 3, 1, 2),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", WRITTEN_INTO)
def test_copies_that_are_written_into(name, layout, mode):
    if (name, layout) == ("as_strided_scatter", "expanded"):
        pytest.skip("the CPU ends with an internal assertion")
    same(lambda device: WRITTEN_INTO[name](LAYOUTS[layout](A(device, 2, 3, 4))).clone(memory_format=torch.preserve_format))
    result = [WRITTEN_INTO[name](LAYOUTS[layout](A(device, 2, 3, 4))) for device in (DEVICE, "cpu")]
    assert result[0].stride() == result[1].stride() and result[0].storage_offset() == result[1].storage_offset()


@pytest.mark.parametrize("shapes", [((3,), 1, ()), ((), 1, (1,)), ((), 1, ()), ((3, 2), 1, (1, 3)), ((3, 2), 1, (1,)), ((3,), 2, (1,)), ((3,), 1, (2,))], ids=str)
@pytest.mark.parametrize("name", ["index_add", "index_copy", "index_reduce"])
def test_slices_of_the_source(name, shapes, mode):
    def run(device):
        rest = ("amax",) if name == "index_reduce" else ()
        return getattr(A(device, *shapes[0]), name)(0, torch.arange(shapes[1], device=device), A(device, *shapes[2]), *rest)

    same(run)


# ---- writes through memory that is there several times --------------------------------------------------------------------

REPEATED = {
    "rows": lambda x: x[0].expand(3, 3), "columns": lambda x: x[:, :1].expand(3, 3), "matrices": lambda x: x.expand(2, 3, 3),
    "turned": lambda x: x[0].expand(2, 3, 3).mT, "one": lambda x: x[0, :1].expand(2, 3, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", REPEATED)
def test_triangles_of_repeated_elements(name, mode):
    for diagonal in (-1, 0, 1):
        for triangle in (torch.Tensor.tril_, torch.Tensor.triu_):
            same(lambda device, t=triangle, k=diagonal: t(REPEATED[name](A(device, 3, 3)), k))


def test_real_numbers_are_their_own_conjugates(mode):
    same(lambda device: A(device, 1).expand(3).conj_physical_())
    same(lambda device: C(device, 1).expand(3).conj_physical_())


def test_an_element_for_a_mask_may_be_one_of_the_written(mode):
    def run(device):
        x = A(device, 4)
        x[x > 2] = x[0]
        return x

    same(run)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_positions_and_their_count_agree_on_denormals(dtype):
    """XLA takes them for zeros in some programs and not in others."""
    bits = torch.tensor([1, 2, 3, 70000000000], device=DEVICE)
    for x in (bits.view(dtype), bits.view(dtype).clone(), bits.view(dtype)[1:]):
        assert (x.nonzero() >= 0).all() and len(x[x.bool()]) == len(x.nonzero())
