"""Runs rows of the operator tables over special values on both devices, and tells where they differ."""

import collections
import contextlib
import itertools
import re
import warnings

import torch
from special_values import COMPLEX, HALVES, NUMBERS, agree, flushed, flushes, grid, parts, values
from torch.utils._pytree import tree_leaves, tree_map

warnings.filterwarnings("ignore")

# ---- calls ----------------------------------------------------------------------------------------------------------


class Call:
    """One call of a function on CPU tensors; `label` tells it from the others of its row."""

    def __init__(self, function, args, kwargs=None, label="", row="", elementwise=False):
        self.function, self.args, self.kwargs, self.label = function, args, kwargs or {}, label
        self.row, self.elementwise = row, elementwise

    def tensors(self):
        return [t for t in tree_leaves((self.args, self.kwargs)) if isinstance(t, torch.Tensor)]

    def run(self, change=lambda t: t):
        args, kwargs = tree_map(lambda v: change(v) if isinstance(v, torch.Tensor) else v, (self.args, self.kwargs))
        try:
            return tree_map(lambda v: v.cpu() if isinstance(v, torch.Tensor) else v, self.function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - both devices must refuse
            return error


def overload(name):
    base, _, rest = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), rest or "default")


OPTIONS = {  # beside the operands; without an entry: the defaults
    "div.Tensor_mode": [{"rounding_mode": m} for m in (None, "trunc", "floor")],
    "div.Scalar_mode": [{"rounding_mode": m} for m in (None, "trunc", "floor")],
    "add.Tensor": [{}, {"alpha": 2}, {"alpha": 0}],
    "sub.Tensor": [{}, {"alpha": 2}, {"alpha": 0}],
    "rsub.Tensor": [{}, {"alpha": 2}],
    "addcmul": [{}, {"value": 2}, {"value": 0}],
    "addcdiv": [{}, {"value": 2}, {"value": 0}],
    "gelu": [{"approximate": a} for a in ("none", "tanh")],
    "gelu_backward": [{"approximate": a} for a in ("none", "tanh")],
    "round.decimals": [{"decimals": n} for n in (0, 2, -1)],
    "logit": [{}, {"eps": 0.1}],
    "logit_backward": [{}, {"eps": 0.1}],
    "elu": [{}, {"alpha": 0.5, "scale": 1.5, "input_scale": 2.0}, {"alpha": -0.5}],
    "elu_backward": [dict(alpha=a, scale=s, input_scale=i, is_result=r) for a, s, i, r in ((1, 1, 1, False), (0.5, 1.5, 2, False), (0.5, 1.5, 2, True))],
    "celu": [{}, {"alpha": 0.5}, {"alpha": -0.5}],
    "hardtanh": [{}, {"min_val": -0.5, "max_val": 2.0}],
    "hardtanh_backward": [{"min_val": -1, "max_val": 1}, {"min_val": 0, "max_val": 2.5}],
    "threshold": [{"threshold": t, "value": v} for t, v in ((0, 2), (0.5, float("nan")), (float("nan"), -1))],
    "threshold_backward": [{"threshold": t} for t in (0, 0.5, float("nan"))],
    "leaky_relu": [{}, {"negative_slope": 0.0}, {"negative_slope": -0.5}],
    "leaky_relu_backward": [dict(negative_slope=s, self_is_result=False) for s in (0.01, 0.0)],
    "hardshrink": [{}, {"lambd": 0.0}, {"lambd": -1.0}, {"lambd": float("nan")}],
    "softshrink": [{}, {"lambd": 0.0}],
    "hardshrink_backward": [{"lambd": v} for v in (0.5, 0.0)],
    "softshrink_backward": [{"lambd": v} for v in (0.5, 0.0)],
    "softplus": [{}, {"beta": 2, "threshold": 5}, {"beta": -1}],
    "softplus_backward": [dict(beta=b, threshold=t) for b, t in ((1, 20), (2, 5), (-1, 20))],
    "rrelu_with_noise_backward": [dict(lower=0.1, upper=u, training=t, self_is_result=False) for u, t in ((0.3, True), (0.3, False), (0.1, True))],
    "nan_to_num": [{}, {"nan": 2.0, "posinf": -1.0, "neginf": 0.5}, {"nan": float("inf")}],
    "clamp": [{"min": a, "max": b} for a, b in ((-1, 2), (None, 1), (0, None), (2, -1), (float("nan"), 1), (0, float("inf")), (None, None))],
    "frexp.Tensor": [{}],
}
MASKS = {"where.self": (0,), "masked_fill.Scalar": (1,), "masked_fill.Tensor": (1,)}  # operands that are bool
SCALARS = {"masked_fill.Tensor": (2,)}  # 0-dim operands


DEGREES = [-1, 0, 1, 2, 5, 6.5, float("nan")]  # of polynomials: the CPU takes as many steps


def numbers_for(dtype, argument=""):
    """Numbers that beside a tensor of the dtype keep it, or show how it is promoted. None overflows a half type: the CPU refuses some."""
    if argument == "n":
        return DEGREES
    if argument == "x":
        return [n for n in numbers_for(dtype) if n == n]  # of polynomials, see EXCEPTIONS
    if dtype in HALVES:
        return [n for n in NUMBERS["float"] if n != 1e30] + [0, 1, -1, 2]
    kinds = ["bool", "int"] if dtype == torch.bool else ["bool", "int", "float"]
    return [n for k in [*kinds, *(["complex"] if dtype in (torch.float32, *COMPLEX) else [])] for n in NUMBERS[k]]


SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)


def without_trap(x, y):
    """The lowest number over -1 ends the process on the CPU: the number after it instead."""
    if x.dtype not in SIGNED:
        return x
    lowest = torch.iinfo(x.dtype).min
    return torch.where((x == lowest) & (torch.as_tensor(y) == -1), lowest + 1, x)


def pointwise_calls(name, dtype):
    """All calls of a row whose operands have the dtype."""
    function = overload(name)
    given = OPTIONS.get(name, [{}])
    operands = [a for a in function._schema.arguments if not a.kwarg_only and a.name not in given[0] and not a.name.startswith("output")]
    operands = [a for a in operands if str(a.type) in ("Tensor", "Optional[Tensor]") or (str(a.type) == "number" and not a.has_default_value())]
    kinds = [str(a.type) for a in operands]
    tensors = [i for i, k in enumerate(kinds) if k != "number" and i not in SCALARS.get(name, ())]
    few = len(tensors) > 2
    vectors = [values(torch.bool if i in MASKS.get(name, ()) else dtype, few) for i in tensors]
    if "_polynomial_" in name and operands[1].name == "n" and 1 in tensors:
        vectors[tensors.index(1)] = torch.tensor(DEGREES if dtype.is_floating_point else DEGREES[1:5]).to(dtype)
    columns = dict(zip(tensors, grid(vectors), strict=True))
    others = [i for i in range(len(operands)) if i not in columns]
    for options, rest in itertools.product(given, itertools.product(*(numbers_for(dtype, operands[i].name) for i in others))):
        rest = dict(zip(others, rest, strict=True))
        if any(i in rest for i in SCALARS.get(name, ())):
            rest = {i: torch.tensor(v) for i, v in rest.items()}
        args = [columns.get(i, rest.get(i)) for i in range(len(operands))]
        label = ", ".join([str(v) for v in rest.values()] + [f"{k}={v}" for k, v in options.items()])
        kwargs = {a.name: v for a, v in zip(operands, args, strict=True)}
        if options.get("rounding_mode") == "trunc":
            kwargs["self"] = without_trap(kwargs["self"], kwargs["other"])
        if name == "log_sigmoid_backward" and dtype.is_floating_point:
            kwargs["buffer"] = kwargs["self"].abs().neg().exp()  # what the forward leaves
        if name in ("gcd", "lcm") and dtype in SIGNED:
            kwargs = {k: v.clamp(min=torch.iinfo(dtype).min + 1) for k, v in kwargs.items()}  # the CPU's lcm divides it by -1
        yield Call(function, [], {**kwargs, **options}, label, name, True)


# ---- answers --------------------------------------------------------------------------------------------------------


def apart(t):
    """The same elements two apart in memory, so that the CPU's kernels take them one by one."""
    if t.dim() == 0 or t.numel() < 2:
        return t
    room = torch.zeros(*t.shape[:-1], 2 * t.shape[-1], dtype=t.dtype)
    room[..., ::2] = t
    return room[..., ::2]


def lengthened(t):
    """With elements more, so that none is in the last incomplete vector."""
    return t.repeat(2) if t.dim() else t


def cut(results, _):
    return results if isinstance(results, Exception) else tree_map(lambda t: t[: len(t) // 2] if t.dim() else t, results)


def narrowed(results, wide, dtype):
    """Results of the wide dtype as the dtype's."""
    change = lambda t: t.to(dtype) if isinstance(t, torch.Tensor) and t.dtype == wide else t  # noqa: E731
    return results if isinstance(results, Exception) else tree_map(change, results)


@contextlib.contextmanager
def flushing():
    assert torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def answers(call, dtype):
    """The CPU's right answers: reason -> results."""
    yield "exact", call.run()
    yield "path", call.run(apart)
    if call.elementwise:
        yield "path", cut(call.run(lengthened), dtype)
    if call.row and dtype in (torch.float32, torch.complex64, *HALVES):
        wide = torch.complex128 if dtype.is_complex else torch.float64
        yield "wide", narrowed(call.run(lambda t: t.to(wide) if t.dtype == dtype else t), wide, dtype)
    if flushes(dtype) or dtype in HALVES:  # these for what is between, in float32
        with flushing():
            yield "flushed", call.run()
            yield "flushed", call.run(apart)
        results = call.run(flushed)
        yield "flushed", results if isinstance(results, Exception) else tree_map(lambda t: flushed(t) if isinstance(t, torch.Tensor) else t, results)


# Rows whose answers for some inputs are no matter of the device.
EXCEPTIONS = [
    ("_polynomial_", lambda x, *_: x.isnan(), "the CPU's loop leaves at NaN with a number that was never set"),
    ("softplus_backward", lambda grad, x: grad.abs() == torch.finfo(grad.dtype).max, "the CPU multiplies the gradient by exp(x) before it divides"),
    ("zeta", lambda x, q: (x.abs() > 90) | (q.abs() > 90), "the CPU's series overflows for large arguments, where the device gives the limit"),
    ("zeta", lambda x, q: (x > 30) & (q < 0) & (2 * q == (2 * q).floor()), "terms of both signs, half a whole number each, cancel up to the largest one's rounding"),
    ("^igamma", lambda a, x: (a == torch.finfo(torch.float64).max) & (x < a), "the CPU's logarithm of gamma is infinite and its difference NaN, where the device gives the limit"),
    ("log_sigmoid_backward", lambda grad, x, z: (z == 0) & grad.isinf() & (grad.dtype == torch.float16), "exp(-|x|), which the CPU reads, has vanished in float16"),
    ("special_airy_ai", lambda x: x == -2.5 if x.dtype == torch.float64 else (x == -127) & (not x.is_floating_point()), "the CPU is off by 2e-6 at -2.5, and in float32 an angle of 900 has few digits"),
    ("digamma", lambda x, *_: (x + 1).abs() < 1e-6, "the CPU is wrong by a third next to the pole at -1"),
    ("gradient digamma", lambda x: (x < 0) & (x == x.floor()), "a pole, which the CPU's sine misses by a rounding"),
]
def in_row(mask):
    """For results of whole rows: those with such an element."""
    return lambda x, e: mask(x).any(1) if e.shape == x.shape[:1] else mask(x).any(0) if e.shape == x.shape[1:] else mask(x).any(1, True).expand_as(x)


def has_equal(x):
    return (x[:, :, None] == x[:, None, :]).sum(2) > 1


WHOLE_EXCEPTIONS = [
    ("polygamma", lambda x, e: (x.float() < 0) & (x.float() == x.float().floor()), "a pole, which the CPU's sine misses by a rounding"),
    ("var_mean", in_row(torch.isinf), "the CPU's mean of infinities depends on their places: it is made in one pass with the variance"),
    ("std_mean", in_row(torch.isinf), "the same"),
    ("mode", in_row(torch.isnan), "the CPU sorts without regard to NaN, so its answer depends on where NaN stands"),
    ("gradient kthvalue", in_row(has_equal), "which of equal elements is the k-th is open"),
    ("gradient std of one, biased", lambda x, e: e == 0, "the sign of a zero that is a sum"),
]
FUNCTIONS = {"acos", "acosh", "asin", "asinh", "conj_physical", "_conj_physical", "cos", "exp", "exp2", "log", "log10", "log2", "neg", "sgn", "sin", "sinh",
             "sqrt", "tan", "tanh"}  # of one complex number: exact in zeros' signs


def excuses(call, a, e, scale):
    """(reason, mask) of elements that may differ."""
    inputs = call.tensors()
    numbers = [torch.as_tensor(v).double() for v in call.kwargs.values() if isinstance(v, (torch.Tensor, int, float))]
    for part, mask, reason in EXCEPTIONS if call.elementwise else WHOLE_EXCEPTIONS:
        if re.search(part, call.row) and e.is_floating_point():
            yield reason, mask(*(numbers if part == "zeta" else inputs)) if call.elementwise else mask(inputs[0], e)
    if call.row in EXTREMES and e.is_floating_point():
        yield "either zero", (a == 0) & (e == 0)
    if call.row in MEANS and e.dtype == torch.float16:
        yield "a rounding error that vanished", (a == 0) & (e == 0)
    if call.row == "acos" and e.dtype == torch.complex128:
        zero = (parts(a)[..., 1] == 0) & (parts(e)[..., 1] == 0) & (inputs[0].imag == 0)
        yield "the CPU subtracts from pi / 2, which loses the sign", torch.stack([torch.zeros_like(zero), zero], -1)
    if not e.is_complex():
        return
    yield "complex", ~parts(e).isfinite().all(-1, True)
    if call.row not in FUNCTIONS:
        same = agree(torch.where(parts(a) == 0, 0, parts(a)), torch.where(parts(e) == 0, 0, parts(e)), scale)
        mask = same | ~parts(a).isfinite().all(-1, True)
        if any(isinstance(v, complex) for v in call.kwargs.values()):
            mask = torch.ones_like(mask)
        for t in inputs:
            mask = mask | ~parts(t).isfinite().all(-1, True) if t.is_complex() and t.shape == e.shape else mask
        yield "complex", mask


# Of two zeros either is the greater one: the CPU's answer depends on the order in which it compares. A zero that is a sum is like that.
EXTREMES = {"amax", "amin", "max", "max.dim", "min", "min.dim", "aminmax", "_aminmax", "_aminmax.dim", "topk", "kthvalue", "median", "median.dim", "nanmedian",
            "nanmedian.dim", "mode", "quantile", "nanquantile", "unique", "cummax", "cummin", "_softmax_backward_data", "_log_softmax_backward_data", "_masked_softmax_backward"}
MEANS = {"var_mean.correction", "std_mean.correction"}  # made in one pass: of what adds up to zero there may be a rounding error
OVERFLOWS = "without overflow"
NO_KERNEL = "not implemented for"


def first_line(error):
    return str(error).strip().splitlines()[0]


def refusal(call, actual, expected):
    """What is wrong with an error, or with its absence; None: nothing. Of PyTorch's words for it the meta kernel's will do."""
    if isinstance(actual, Exception) and isinstance(expected, Exception):
        a, e = first_line(actual), first_line(expected).removesuffix(" on CPU")
        if e in a or NO_KERNEL in e or (OVERFLOWS in e and OVERFLOWS in a):
            return None
        meta = call.run(lambda t: t.to("meta"))
        return None if isinstance(meta, Exception) and first_line(meta) in a else f"says {a!r}, the CPU {e!r}"
    if isinstance(expected, Exception):
        return None if NO_KERNEL in str(expected) or " on CPU" in str(expected) else f"computes, the CPU says {str(expected).splitlines()[0]!r}"
    return f"says {str(actual).splitlines()[0]!r}, the CPU computes"


class Finding(collections.namedtuple("Finding", "call wrong count example")):
    def __str__(self):
        return f"{self.call}: {self.wrong}" + (f" in {self.count}: {self.example}" if self.count else "")


def shown(t, i):
    t = t.detach().reshape(-1)[i]
    return repr(t.float().item() if t.dtype.itemsize == 1 and t.dtype.is_floating_point else t.item())


def inputs_at(call, i):
    return ", ".join(shown(t, i if t.numel() > i else 0) for t in call.tensors())


# Tolerances that are exceeded where terms cancel each other, times the default ones. A power of a large complex number loses the
# digits of its angle.
LOOSE = {"gelu_backward": 40}


def differences(call, dtype, reasons):
    """Findings of one call. Counts in `reasons` what was right for another reason than being the CPU's own answer."""
    found, scale = list(answers(call, dtype)), 30 if dtype.is_complex and call.row.startswith("pow") else LOOSE.get(call.row, 1)
    expected, actual = found[0][1], call.run(lambda t: t.to("tpu"))
    if isinstance(actual, Exception) or isinstance(expected, Exception):
        if OVERFLOWS in str(expected):
            return  # the device's programs are made before they know the number
        if isinstance(expected, torch.Tensor) and expected.dtype == torch.complex32:
            return  # a dtype that the device doesn't have
        wrong = refusal(call, actual, expected)
        if wrong:
            yield Finding(call.label, wrong, 0, "")
        return
    alternatives = [(r, tree_leaves(v)) for r, v in found if not isinstance(v, Exception)]
    for k, (a, e) in enumerate(zip(tree_leaves(actual), tree_leaves(expected), strict=True)):
        if not isinstance(e, torch.Tensor):
            if a != e:
                yield Finding(call.label, f"gives {a}, the CPU {e}", 0, "")
            continue
        if a.dtype != e.dtype or a.shape != e.shape:
            yield Finding(call.label, f"gives {a.dtype} {list(a.shape)}, the CPU {e.dtype} {list(e.shape)}", 0, "")
            continue
        left = torch.ones(parts(e).shape, dtype=torch.bool)
        for reason, results in alternatives:
            if results[k].shape != e.shape:
                continue
            right = left & agree(a, results[k], scale)
            if reason != "exact" and right.any():
                reasons[reason] += int(right.sum())
            left &= ~right
        excused = excuses(call, a, e, scale)
        for reason, mask in excused:
            reasons[reason] += int((left & mask).sum())
            left &= ~mask
        if left.any():
            where = left.any(-1).view(-1) if e.is_complex() else left.view(-1)
            places = where.nonzero().view(-1).tolist()
            same_shape = all(t.shape == e.shape for t in tree_leaves((call.args, call.kwargs)) if isinstance(t, torch.Tensor) and t.dim())
            examples = [f"({inputs_at(call, i) if same_shape else i}) -> {shown(a, i)} not {shown(e, i)}" for i in places[:: max(1, len(places) // 6)][:6]]
            yield Finding(call.label, f"result {k}" if k else "", len(places), "; ".join(examples))
