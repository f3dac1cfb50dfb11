"""Rows that take an array as a whole: reductions, scans, sorting, softmax, casts; and gradients where functions have kinks."""

import itertools
import math

import torch
from special_sweep import Call
from special_values import COMPLEX, DTYPES, FLOAT8, FLOATS, HALVES, INTS, WIDE_UNSIGNED, values

aten = torch.ops.aten
inf, nan = math.inf, math.nan


def lanes(dtype):
    """Matrices whose rows have special values in them: every pair, and one at each place of a long row."""
    v = values(dtype, few=not dtype.is_complex)
    if dtype.is_complex:
        v = values(dtype, few=True)[::5]
    yield torch.cartesian_prod(v, v).contiguous()
    length = 19
    one = torch.ones(len(v) * length, length, dtype=dtype)
    places = torch.arange(length).repeat(len(v))
    one[torch.arange(len(one)), places] = v.repeat_interleave(length)
    yield one
    few = v[:: max(1, len(v) // 6)]
    yield torch.cartesian_prod(*[few] * 4).contiguous() if len(few) < 8 else torch.cartesian_prod(*[few[:6]] * 4).contiguous()


def both_ways(f):
    """The function of a matrix and a dimension: along rows, and along columns of the transposed one."""
    return [lambda x, f=f: f(x, 1), lambda x, f=f: f(x.t().contiguous(), 0)]


def all_of(f):
    return [lambda x, f=f: torch.stack([torch.as_tensor(f(row)) for row in x[:: max(1, len(x) // 5)]])]


ORDERS = (0, 1, 2, 3, 0.5, -1, -2, inf, -inf)
WHOLE = {
    "sum": all_of(torch.sum), "sum.dim_IntList": both_ways(torch.sum), "nansum": both_ways(torch.nansum),
    "prod": all_of(torch.prod), "prod.dim_int": both_ways(torch.prod), "mean": all_of(torch.mean), "mean.dim": both_ways(torch.mean),
    "count_nonzero": both_ways(torch.count_nonzero), "count_nonzero.dim_IntList": both_ways(lambda x, d: torch.count_nonzero(x, (d,))),
    "hash_tensor": both_ways(torch.hash_tensor), "trace": [lambda x: torch.trace(x[:5, :5])], "any": all_of(torch.any), "any.dim": both_ways(torch.any),
    "any.dims": both_ways(lambda x, d: torch.any(x, (d,))), "all": all_of(torch.all), "all.dim": both_ways(torch.all),
    "all.dims": both_ways(lambda x, d: torch.all(x, (d,))), "amax": both_ways(torch.amax), "amin": both_ways(torch.amin),
    "max": all_of(torch.max), "max.dim": both_ways(lambda x, d: tuple(torch.max(x, d))), "min": all_of(torch.min),
    "min.dim": both_ways(lambda x, d: tuple(torch.min(x, d))), "aminmax": both_ways(lambda x, d: tuple(torch.aminmax(x, dim=d))),
    "_aminmax": [lambda x: tuple(aten._aminmax(x[3]))], "_aminmax.dim": both_ways(lambda x, d: tuple(aten._aminmax.dim(x, d))),
    "argmax": both_ways(torch.argmax) + all_of(torch.argmax), "argmin": both_ways(torch.argmin) + all_of(torch.argmin),
    "var.correction": both_ways(lambda x, d: torch.var(x, d)) + [lambda x: torch.var(x, 1, correction=c) for c in (0, 2, 3)],
    "std.correction": both_ways(lambda x, d: torch.std(x, d)) + [lambda x: torch.std(x, 1, correction=0)],
    "var_mean.correction": both_ways(lambda x, d: torch.var_mean(x, d)), "std_mean.correction": both_ways(lambda x, d: torch.std_mean(x, d)),
    "linalg_vector_norm": [lambda x, p=p: torch.linalg.vector_norm(x, p, 1) for p in ORDERS],
    "norm.Scalar": [lambda x, p=p: torch.stack([aten.norm.Scalar(r, p) for r in x[:5]]) for p in (2, 0, inf)],
    "norm.ScalarOpt_dtype": [lambda x: aten.norm.ScalarOpt_dtype(x[1].abs(), 2, dtype=x.abs().dtype)],
    "norm.ScalarOpt_dim": [lambda x, p=p: aten.norm.ScalarOpt_dim(x, p, [1]) for p in ORDERS],
    "norm.ScalarOpt_dim_dtype": [lambda x: aten.norm.ScalarOpt_dim_dtype(x.abs(), 2, [1], dtype=x.abs().dtype)],
    "dist": [lambda x, p=p: torch.stack([torch.dist(r, r.flip(0), p) for r in x[:: max(1, len(x) // 5)]]) for p in (2, 1, inf, 0)],
    "renorm": [lambda x, p=p: torch.renorm(x, p, 0, 1.0) for p in (2, 1, inf)], "logsumexp": both_ways(torch.logsumexp),
    "cumsum": both_ways(torch.cumsum), "cumprod": both_ways(torch.cumprod), "cummax": both_ways(lambda x, d: tuple(torch.cummax(x, d))),
    "cummin": both_ways(lambda x, d: tuple(torch.cummin(x, d))), "logcumsumexp": both_ways(torch.logcumsumexp), "_logcumsumexp": both_ways(aten._logcumsumexp),
    "sort": [lambda x, d=d: tuple(torch.sort(x, 1, d, stable=True)) for d in (False, True)],
    "sort.stable": [lambda x, d=d: tuple(aten.sort.stable(x, stable=True, dim=1, descending=d)) for d in (False, True)]
    + [lambda x: torch.msort(x.t().contiguous()), lambda x: torch.argsort(x, 1, stable=True, descending=True)],
    "topk": [lambda x, g=g: torch.topk(x, x.shape[1], 1, g)[0] for g in (False, True)], "kthvalue": [lambda x, k=k: torch.kthvalue(x, k, 1)[0] for k in (1, 2)],
    "median": all_of(torch.median), "median.dim": both_ways(lambda x, d: torch.median(x, d)[0]), "nanmedian": all_of(torch.nanmedian),
    "nanmedian.dim": both_ways(lambda x, d: torch.nanmedian(x, d)[0]), "mode": both_ways(lambda x, d: torch.mode(x, d)[0]),
    "searchsorted.Tensor": [lambda x, r=r: torch.searchsorted(x.sort(1)[0], x, right=r) for r in (False, True)],
    "searchsorted.Scalar": [lambda x: torch.searchsorted(x[-1].sort()[0], 1.0)],
    "bucketize.Tensor": [lambda x, r=r: torch.bucketize(x, x[-1].sort()[0], right=r) for r in (False, True)],
    "bucketize.Scalar": [lambda x: torch.bucketize(1.0, x[-1].sort()[0])],
    "isin.Tensor_Tensor": [lambda x: torch.isin(x, x[-1]), lambda x: torch.isin(x, x[:9]), lambda x: torch.isin(x, torch.cat([x[-20:], x[-1:].repeat(30, 1)]))], "isin.Tensor_Scalar": [lambda x: torch.isin(x, 1)],
    "isin.Scalar_Tensor": [lambda x: torch.isin(1, x)],
    "_softmax": both_ways(torch.softmax), "_log_softmax": both_ways(torch.log_softmax), "_safe_softmax": both_ways(aten._safe_softmax),
    "_softmax_backward_data": [lambda x: aten._softmax_backward_data(x, x.flip(0), 1, x.dtype)],
    "_log_softmax_backward_data": [lambda x: aten._log_softmax_backward_data(x, x.flip(0), 1, x.dtype)],
    "_masked_softmax": [lambda x: aten._masked_softmax(x, x > 0, 1, 2)],
    "_masked_softmax_backward": [lambda x: aten._masked_softmax_backward(x, x.flip(0), x > 0, 1)],
    # no rows, but made of some
    "nanmean": both_ways(torch.nanmean), "quantile": [lambda x, i=i: torch.quantile(x, 0.3, 1, interpolation=i) for i in ("linear", "lower", "higher", "nearest", "midpoint")],
    "nanquantile": [lambda x: torch.nanquantile(x, 0.3, 1)], "unique": [lambda x: torch.unique(x[~x.isnan()])],
    # rows like pointwise ones
    "elu_backward": [lambda x, a=a: aten.elu_backward(x, *a, x.flip(0)) for a in ((1, 1, 1, False), (0.5, 1.5, 2, False), (0.5, 1.5, 2, True))],
    "frexp.Tensor": [lambda x: tuple(torch.frexp(x))], "log_sigmoid_forward": [lambda x: aten.log_sigmoid_forward(x)[0]],
    "_prelu_kernel_backward": [lambda x: aten._prelu_kernel_backward(x, x.flip(0), x.roll(1, 0))],
    "glu": [lambda x: torch.nn.functional.glu(torch.cat([x, x.flip(0)], 1), 1)], "glu_backward": [lambda x: aten.glu_backward(x, torch.cat([x, x.flip(0)], 1), 1)],
    "polygamma": [lambda x, n=n: torch.polygamma(n, x) for n in range(4)],
}

def whole_calls(name, dtype):
    for (i, x), (k, f) in itertools.product(enumerate(lanes(dtype)), enumerate(WHOLE[name])):
        yield Call(f, [x], label=f"form {k} on matrix {i}", row=name)


# ---- casts ----------------------------------------------------------------------------------------------------------

CAST_DTYPES = [*FLOATS, *FLOAT8, *INTS, *WIDE_UNSIGNED, torch.bool, *COMPLEX]
_SIZES = [0.0, 5e-324, 1e-310, 1e-45, 1e-40, 2.0**-126, 6e-8, 6e-5, 2.0**-17, 2.0**-9, 0.1, 0.5, 0.999, 1.0, 1.5, 2.5, 3.5, 127, 127.9, 128, 255, 255.5, 256, 240, 448,
          464, 479, 480, 57344, 61440, 32767.5, 32768, 65504, 65519, 65520, 65535, 65536, 2.0**31 - 128, 2.0**31, 2.0**31 + 3, 2.0**31 + 256, 2.0**32, 2.0**32 + 1,
          2.0**53, 2.0**62, 2.0**63 - 1024, 2.0**63, 2.0**64 - 2048, 2.0**64, 1e20, 3.4e38, 3.5e38, 1e300, inf]


def cast_values(dtype):
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point or dtype.is_complex:
        t = torch.tensor([s * v for v in _SIZES for s in (1, -1)] + [nan], dtype=torch.float64)
        return (torch.complex(t, t.flip(0)) if dtype.is_complex else t).to(dtype)
    i = torch.iinfo(dtype)
    edges = {s * (2**n + d) for n in (0, 1, 7, 8, 15, 16, 24, 31, 32, 53, 62, 63, 64) for d in (-1, 0, 1, 3) for s in (1, -1)} | {0, 65504, 65519, 65520, i.min, i.max}
    fitting = sorted(v for v in edges if i.min <= v <= i.max)
    if dtype == torch.uint64:
        return torch.tensor([v if v < 2**63 else v - 2**64 for v in fitting]).view(dtype)
    return torch.tensor(fitting).to(dtype)


def cast_calls(source, target):
    x = cast_values(source)
    yield Call(lambda x: x.to(target), [x], label="to")
    yield Call(lambda x: torch.zeros(x.shape, dtype=target, device=x.device).copy_(x), [x], label="copy_")
    yield Call(lambda x: torch.zeros(2, *x.shape, dtype=target, device=x.device).t().copy_(x[:, None])[:, 1], [x], label="copy_ into columns")
    if torch.can_cast(source, target) and not {source, target} & {*FLOAT8, *WIDE_UNSIGNED}:
        yield Call(lambda x: torch.add(x, x, out=torch.zeros(x.shape, dtype=target, device=x.device)), [x], label="out=")


def promotion_calls(a, b):
    x, y = values(a)[:7], values(b)[:7]
    n = min(len(x), len(y))
    for f in (torch.add, torch.mul, torch.div, torch.eq, torch.maximum, lambda x, y: torch.where(x == y, x, y), lambda x, y: torch.cat([x, y])):
        yield Call(f, [x[:n], y[:n]], label="tensors")
    yield Call(torch.add, [x, y[1]], label="a 0-dim one")
    # Not an integer beyond a half type as the second factor: there alone the CPU doesn't round it to the half type.
    second = y[4 if a == torch.float16 and b in (torch.int32, torch.int64) else 1]
    yield Call(torch.mul, [x[1], second], label="two 0-dim ones")


# ---- gradients ------------------------------------------------------------------------------------------------------

F = torch.nn.functional
KINKS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 3.0, 6.0, -2.0, 20.0, inf, -inf, nan]
UNARY = {name: getattr(torch, name) for name in (
    "abs", "relu", "sqrt", "rsqrt", "log", "log1p", "log2", "log10", "reciprocal", "sign", "sgn", "frac", "trunc", "asin", "acos", "atanh", "acosh", "asinh", "tan", "erfinv",
    "digamma", "lgamma", "sinc", "logit", "nan_to_num", "square", "exp", "expm1", "sigmoid", "tanh", "i0", "deg2rad", "angle", "ceil", "positive")}
UNARY |= {name: getattr(F, name) for name in ("relu6", "hardtanh", "hardsigmoid", "hardswish", "hardshrink", "softshrink", "elu", "selu", "celu", "leaky_relu", "softplus",
                                             "logsigmoid", "silu", "mish", "gelu", "softsign", "tanhshrink", "threshold")}
UNARY["threshold"] = lambda x: F.threshold(x, 0.5, 2.0)
UNARY |= {f"pow {p}": lambda x, p=p: x.pow(p) for p in (0, 1, 2, 3, -1, 0.5, 1.5, 0.0, inf)} | {f"{b} pow": lambda x, b=b: torch.pow(b, x) for b in (0.0, 1.0, 2.0, -1.0)}
UNARY |= {"clamp": lambda x: x.clamp(-1, 2), "clamp min": lambda x: x.clamp(min=0), "clamp max": lambda x: x.clamp(max=0.5), "xlogy 0": lambda x: torch.xlogy(0.0, x),
          "entr": torch.special.entr, "i1": torch.special.i1, "i0e": torch.special.i0e, "ndtri": torch.special.ndtri, "log_ndtr": torch.special.log_ndtr}
BINARY = {name: getattr(torch, name) for name in ("maximum", "minimum", "fmax", "fmin", "hypot", "atan2", "pow", "div", "mul", "copysign", "fmod", "remainder", "logaddexp",
                                                 "logaddexp2", "xlogy", "nextafter", "heaviside")}
BINARY |= {"clamp tensors": lambda x, y: x.clamp(min=y), "special.xlog1py": torch.special.xlog1py, "prelu": lambda x, y: torch.ops.aten._prelu_kernel(x, y),
           "where": lambda x, y: torch.where(x > y, x, y), "l1": lambda x, y: F.l1_loss(x, y, reduction="none"), "huber": lambda x, y: F.huber_loss(x, y, reduction="none"),
           "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), "lerp": lambda x, y: torch.lerp(x, y, 0.5)}
ROWS = {"prod": lambda x: x.prod(1), "prod all": lambda x: x.prod(), "cumprod": lambda x: x.cumprod(1), "cumsum": lambda x: x.cumsum(1), "max": lambda x: x.max(1)[0],
        "amax": lambda x: x.amax(1), "amin": lambda x: x.amin(1), "max all": lambda x: x.max(), "min all": lambda x: x.min(), "median": lambda x: x.median(1)[0],
        "var": lambda x: x.var(1), "std": lambda x: x.std(1), "var of one": lambda x: x[:, :1].var(1), "std of one": lambda x: x[:, :1].std(1),
        "std of one, biased": lambda x: x[:, :1].std(1, correction=0), "logsumexp": lambda x: x.logsumexp(1), "softmax": lambda x: x.softmax(1),
        "log_softmax": lambda x: x.log_softmax(1), "cummax": lambda x: x.cummax(1)[0], "logcumsumexp": lambda x: x.logcumsumexp(1), "sort": lambda x: x.sort(1, stable=True)[0],
        "kthvalue": lambda x: x.kthvalue(2, 1)[0], "aminmax": lambda x: torch.stack(torch.aminmax(x, dim=1)), "nansum": lambda x: x.nansum(1), "nanmean": lambda x: x.nanmean(1),
        "mode": lambda x: x.mode(1)[0], "renorm": lambda x: x.renorm(2, 0, 1.0), "dist": lambda x: torch.dist(x, x.flip(0).detach()), "normalize": lambda x: F.normalize(x, dim=1)}
ROWS |= {f"norm {p}": lambda x, p=p: torch.linalg.vector_norm(x, p, 1) for p in ORDERS}
MATRIX = [[0.0, 0.0, 0.0], [-0.0, 0.0, 1.0], [0.0, 2.0, 3.0], [1.0, 1.0, 1.0], [2.0, 2.0, -1.0], [-1.0, 0.0, 0.0], [0.5, -2.0, 4.0], [1.0, inf, 1.0], [0.0, -inf, 1.0],
          [inf, inf, 0.0], [nan, 1.0, 0.0], [-inf, -inf, -inf]]


def gradient(function):
    def run(*inputs):
        leaves = [t.detach().clone().requires_grad_() for t in inputs]
        out = function(*leaves)
        weights = torch.arange(1.0, out.numel() + 1, dtype=torch.float64).remainder(5).add(0.5).view(out.shape).to(out.dtype)
        torch.autograd.backward(out, weights.to(out.device))
        return tuple(torch.zeros_like(t) if t.grad is None else t.grad for t in leaves)
    return run


def gradient_calls(dtype):
    x = torch.tensor(KINKS, dtype=dtype).repeat(3)
    pairs = torch.cartesian_prod(x[:15], x[:15])
    for name, f in UNARY.items():
        yield Call(gradient(f), [x], label=name, row="gradient " + name, elementwise=True)
    for name, f in BINARY.items():
        yield Call(gradient(f), [pairs[:, 0].contiguous(), pairs[:, 1].contiguous()], label=name, row="gradient " + name, elementwise=True)
    if dtype.is_floating_point:
        for name, f in ROWS.items():
            yield Call(gradient(f), [torch.tensor(MATRIX, dtype=dtype)], label=name, row="gradient " + name)
