"""Strides and offsets of results are the CPU's, over PyTorch's operator database and for what users do with formats.

Deferred, since then a call's layouts are known without a program: only where values are compared, something is compiled."""

import itertools
import warnings

import pytest
import torch
from database import EVERYTHING, difference, layout, named, outcome, part, telling, twin, twins
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

pytestmark = pytest.mark.usefixtures("native")

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
MOST = 1000 if EVERYTHING else 12  # samples of an operator

GAPS = "on the CPU the result has the gaps and the offset of its first argument; on the device every result is dense"
MATRIX = "the device has one backward for linear; the CPU's is that of mm, which looks at the strides of both matrices"
SIZES = "statistics that nobody needs have no elements on the CPU alone; PyTorch's shape functions give them some"
VIEWED = "the CPU's sees an image of one row, of which a swapped weight looks channels-last"
CUT = "where padding only removes something, the CPU clones what is left with its strides; the device pads"
JOINED = "one operator on the device; on the CPU several, of which the last sees only what the others made"
SMALL = "channels-last if the input or weight is, as on CUDA; the CPU's own convolution, which it takes for small shapes, is not"
FOURIER = "the CPU's library leaves the dimension that it transformed last innermost, and for some shapes only"
NO_ROW = "the device has no such operator; with the CPU's fallback it runs there"
# Operators whose layouts differ, with the reason.
KNOWN = {
    "diagonal_scatter": GAPS, "select_scatter": GAPS, "slice_scatter": GAPS, "as_strided_scatter": GAPS,
    "cdist": JOINED, "nn_functional_multi_head_attention_forward": MATRIX, "nn_functional_linear": MATRIX, "nn_functional_linear_cross_entropy": MATRIX,
    "nn_functional_linear_cross_entropy_chunked": MATRIX, "nn_functional_linear_cross_entropy_chunked_none": MATRIX,
    "native_batch_norm": SIZES, "_native_batch_norm_legit": SIZES,
    "nn_functional_conv3d": SMALL, "nn_functional_conv_transpose3d": SMALL,
    "nn_functional_conv1d": VIEWED, "nn_functional_conv_transpose1d": VIEWED,
    "constant_pad_nd": CUT, "nn_functional_pad_constant": CUT,
    **{op.formatted_name: FOURIER for op in op_db if op.name.startswith(("fft.", "stft", "istft"))},
    "sparse_sampled_addmm": NO_ROW, "sparse_mm_reduce": NO_ROW, "torch__scaled_mm_v2": NO_ROW,
    "ldexp": JOINED, "nn_functional_binary_cross_entropy_with_logits": JOINED,
    "tensor_split": "PyTorch wants these indices on the CPU",
    "nn_functional_pixel_shuffle": "with a single channel both formats fit the gradient of its result",
    "torch__scaled_mm": "strides that CUDA refuses are refused; the CPU takes any",
    "nn_functional_scaled_dot_product_attention": "the CPU's gradients have heads behind positions, as its kernel wants its arguments",
    "chalf": "there is no complex half type on the device",
}


def formatted(t):
    return t.detach().contiguous(memory_format=FORMATS.get(t.dim(), torch.contiguous_format)).requires_grad_(t.requires_grad)


def is_formatted(t):
    return isinstance(t, torch.Tensor) and t.layout == torch.strided and t.dim() in FORMATS


def swapped(t):
    """The last two dimensions change places in memory."""
    if t.layout != torch.strided or t.dim() < 2:
        return t
    return t.detach().transpose(-1, -2).contiguous().transpose(-1, -2).requires_grad_(t.requires_grad)


def changed(sample, kind):
    """The sample with other strides. None: it has no tensor that this is about."""
    if kind == "noncontiguous":
        return outcome(sample.noncontiguous)
    if kind == "swapped":
        return sample.transform(lambda t: swapped(t) if isinstance(t, torch.Tensor) else t)
    count = itertools.count()
    chosen = {"all": lambda i: True, "first": lambda i: i == 0, "others": lambda i: i > 0}[kind]
    result = sample.transform(lambda t: formatted(t) if is_formatted(t) and chosen(next(count)) else t)
    seen = next(count)
    return result if seen > (0 if kind == "all" else 1) else None


def run(op, args, kwargs, backward):
    result = op(*args, **kwargs)
    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not backward or not outputs or not inputs:
        return result, ()
    return result, torch.autograd.grad(outputs, inputs, [torch.ones_like(t) for t in outputs], allow_unused=True)


def sweep(op, kind, values=False):
    """What differs, a line for each call."""
    dtype = torch.float32 if torch.float32 in op.dtypes else min(op.dtypes, key=str, default=None)
    backward = op.supports_autograd and dtype == torch.float32
    samples = outcome(lambda: list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), MOST)))
    for i, sample in enumerate([] if dtype is None or isinstance(samples, Exception) else samples):
        given = sample if kind == "plain" else changed(sample, kind)
        if given is None or isinstance(given, Exception):
            continue
        call = (given.input, *given.args), given.kwargs
        there = twins(call)
        expected = outcome(run, op, *call, backward)
        if isinstance(expected, Exception):
            continue
        actual = outcome(run, op, *there, backward)
        where = f"sample {i}, {layout(call)[:4]}"
        if isinstance(actual, Exception):
            yield f"{where}: {type(actual).__name__} {str(actual).splitlines()[0][:200]}"
            continue
        for what, a, e in zip(("result", "gradient"), map(layout, actual), map(layout, expected), strict=True):
            for x, y in zip(a, e, strict=False):
                if telling([x]) != telling([y]):
                    yield f"{where}: {what} {x}, on the CPU {y}"
            if len(a) != len(e):
                yield f"{where}: {len(a)} {what}s, on the CPU {len(e)}"
        if values:
            found = difference(actual, expected, rtol=1e-3, atol=1e-3)
            if found:
                yield f"{where}: {found}"


KINDS = "plain", "noncontiguous", "swapped", "all", "first", "others"


@pytest.mark.parametrize("op", named(part(op_db, 8)))
@pytest.mark.filterwarnings("ignore")
def test_layouts(op):
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
        found = [f"{kind}: {line}" for kind in KINDS for line in sweep(op, kind)]
    assert not found or op.formatted_name in KNOWN, "\n".join(found)


# ---- what users do with formats -------------------------------------------------------------------------------------


BASE = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
INPUTS = {
    "contiguous": lambda: BASE.clone(),
    "channels_last": lambda: BASE.contiguous(memory_format=torch.channels_last),
    "permuted": lambda: BASE.permute(3, 1, 0, 2),
    "expanded": lambda: BASE[:, :1].expand(2, 3, 4, 5),
    "expanded_whole": lambda: torch.ones(()).expand(2, 3, 4, 5),
    "overlapping": lambda: torch.arange(40.0).as_strided((2, 3, 4, 5), (8, 4, 2, 1)),
    "sliced": lambda: BASE[:, :, 1:3, ::2],
    "sliced_channels_last": lambda: BASE.contiguous(memory_format=torch.channels_last)[:, 1:],
    "one_channel": lambda: BASE[:, :1].contiguous(memory_format=torch.channels_last),
    "one_by_one": lambda: BASE[:, :, :1, :1].contiguous(memory_format=torch.channels_last),
    "empty": lambda: BASE[:0].contiguous(memory_format=torch.channels_last),
    "empty_strided": lambda: torch.empty_strided((2, 0, 3), (1, 7, 2)),
    "vector": lambda: torch.arange(10.0)[::2],
    "volume": lambda: BASE[None].contiguous(memory_format=torch.channels_last_3d),
    "number": lambda: torch.tensor(2.0),
}
FILLED = {
    "clone": lambda x: x.clone(),
    "clone_contiguous": lambda x: x.clone(memory_format=torch.contiguous_format),
    "clone_channels_last": lambda x: x.clone(memory_format=FORMATS[x.dim()]),
    "contiguous": lambda x: x.contiguous(),
    "contiguous_channels_last": lambda x: x.contiguous(memory_format=FORMATS[x.dim()]),
    "to_channels_last": lambda x: x.to(memory_format=FORMATS[x.dim()]),
    "to_half_channels_last": lambda x: x.to(torch.float16, memory_format=FORMATS[x.dim()]),
    "to_half": lambda x: x.to(torch.float16),
    "to_half_contiguous": lambda x: x.to(torch.float16, memory_format=torch.contiguous_format),
    "to_copy": lambda x: x.to(torch.float32, copy=True),
    "zeros_like": lambda x: torch.zeros_like(x),
    "zeros_like_contiguous": lambda x: torch.zeros_like(x, memory_format=torch.contiguous_format),
    "full_like_channels_last": lambda x: torch.full_like(x, 3, memory_format=FORMATS[x.dim()]),
    "ones_like_of_another_dtype": lambda x: torch.ones_like(x, dtype=torch.int64),
    "cpu": lambda x: x.to("cpu", copy=True),
    "cpu_channels_last": lambda x: x.to("cpu", copy=True, memory_format=FORMATS[x.dim()]),
    "abs": lambda x: x.abs(),
    "add_itself": lambda x: x + x,
    "add_a_row": lambda x: x + x[-1:],
    "add_a_number": lambda x: x + 1,
    "compare": lambda x: x > 2,
    "where": lambda x: torch.where(x > 2, x, 0.5),
    "add_contiguous": lambda x: x + x.contiguous(),
    "contiguous_add": lambda x: x.contiguous() + x,
    "cat": lambda x: torch.cat([x, x], 1),
    "cat_with_contiguous": lambda x: torch.cat([x, x.contiguous()], 1),
    "stack": lambda x: torch.stack([x, x]),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.0),
    "relu": torch.relu,
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1)),
    "sum": lambda x: x.sum(1, keepdim=True),
    "cumsum": lambda x: x.cumsum(1),
    "softmax": lambda x: x.softmax(1),
    "sort": lambda x: x.sort(1, stable=True),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 1),
    "index": lambda x: x[[0, 0]],
    "mask": lambda x: x[x > 2],
    "tril": lambda x: x.tril(),
    "pooled": lambda x: torch.nn.functional.max_pool2d(x, 2),
    "averaged": lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 1),
    "interpolated": lambda x: torch.nn.functional.interpolate(x, scale_factor=2.0),
    "bilinear": lambda x: torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: torch.nn.functional.group_norm(x, 1),
    "instance_norm": lambda x: torch.nn.functional.instance_norm(x),
    "pixel_unshuffle": lambda x: torch.nn.functional.pixel_unshuffle(x, 2),
}
UNFILLED = {
    "empty_like": lambda x: torch.empty_like(x),
    "empty_like_contiguous": lambda x: torch.empty_like(x, memory_format=torch.contiguous_format),
    "empty_like_channels_last": lambda x: torch.empty_like(x, memory_format=FORMATS[x.dim()]),
    "rand_like": lambda x: torch.rand_like(x),
    "new_empty": lambda x: x.new_empty(x.shape),
    "resize_channels_last": lambda x: x.clone().resize_((2, 3, 2, 2), memory_format=torch.channels_last),
    "resize_as": lambda x: torch.empty(0, device=x.device).resize_as_(x, memory_format=torch.preserve_format),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.5)),
}


EXACTLY = "like", "clone", "contiguous", "to_", "cpu", "add", "abs", "compare", "where", "relu", "new_empty", "resize"


@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("name", [*FILLED, *UNFILLED])
def test_formats(given, name):
    function = FILLED.get(name) or UNFILLED[name]
    x = INPUTS[given]()
    expected, actual = outcome(function, x), outcome(function, twin(x))
    if isinstance(expected, Exception):
        assert isinstance(actual, Exception), expected
        return
    assert not isinstance(actual, Exception), actual
    if name in FILLED:
        assert not difference(actual, expected)
    exactly = layout if any(word in name for word in EXACTLY) else lambda value: telling(layout(value))
    assert exactly(actual) == exactly(expected)


CONVOLUTIONS = {2: (torch.nn.functional.conv2d, torch.nn.functional.conv_transpose2d),
                3: (torch.nn.functional.conv3d, torch.nn.functional.conv_transpose3d)}


@pytest.mark.parametrize("spatial", CONVOLUTIONS)
@pytest.mark.parametrize("transposed", (False, True))
@pytest.mark.parametrize("formats", [(False, False), (True, False), (False, True), (True, True)])
def test_a_convolution_is_channels_last_if_its_input_or_weight_is(spatial, transposed, formats):
    """As on CUDA; the CPU says so for the shapes only that its library takes."""
    x, w = torch.randn(2, 4, *[5] * spatial), torch.randn(4, 4, *[3] * spatial)
    x, w = (formatted(t) if chosen else t for t, chosen in zip((x, w), formats, strict=True))
    there = [twin(t).requires_grad_() for t in (x, w)]
    y = CONVOLUTIONS[spatial][transposed](*there)
    expected = CONVOLUTIONS[spatial][transposed](x, w)
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-4, atol=1e-4)
    for t in (y, *torch.autograd.grad(y.sum(), there)):
        assert t.is_contiguous(memory_format=FORMATS[t.dim()]) == any(formats)


if __name__ == "__main__":
    import sys
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.tpu.set_cpu_fallback("error")
    kinds, only = sys.argv[1].split(","), sys.argv[2:]
    MOST = 40
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
        for op in op_db:
            if only and op.formatted_name not in only:
                continue
            torch.manual_seed(0)
            for kind in kinds:
                for line in itertools.islice(sweep(op, kind), 1000 if only else 4):
                    print(op.formatted_name, kind, line[:400], flush=True)
    print("DONE")
