"""What the sweep over special values compares with what: the values of each dtype, and when two answers are the same.

An element may have one of several right answers, each with a reason:

- `exact`: the CPU's answer.
- `path`: PyTorch's CPU kernels work on vectors where an array is contiguous and on numbers else, and the two differ at times.
- `complex`: what a product or quotient of complex numbers is where a part of them is infinite or NaN depends on the formula
  (the CPU has several itself). Where the CPU's answer isn't finite, ours may be any that isn't.
- `flushed`: XLA:CPU takes subnormal numbers of float32, float64 and bfloat16 for zeros and gives zeros for them, as PyTorch
  does after `torch.set_flush_denormal(True)`, and TPUs do. The processor's mode is set around a whole program, out of
  reach of what is in it. So the CPU's answer in that mode counts.
"""

import math

import torch

INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
WIDE_UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
HALVES = [torch.bfloat16, torch.float16]
FLOATS = [torch.float32, torch.float64, *HALVES]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = [*FLOATS, *INTS, torch.bool, *COMPLEX]


def flushes(dtype):
    return dtype not in (torch.float16, *FLOAT8) and (dtype.is_floating_point or dtype.is_complex)


def _floats(dtype):
    f = torch.finfo(dtype)
    smallest = f.smallest_normal * f.eps
    corners = [0.0, smallest, f.smallest_normal - smallest, f.smallest_normal, f.max, math.inf]
    middle = [1.0, 1 + f.eps, 1 - f.eps / 2, 0.5, 0.1, 1.5, 2.0, 2.5, 3.0, math.pi / 2, 7.75, 21.0, 89.0, 300.5]
    return [s * v for v in corners + middle for s in (1, -1)] + [math.nan]


def _ints(dtype):
    i = torch.iinfo(dtype)
    middle = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127]
    every = {s * v for v in middle for s in (1, -1)} | {i.min, i.min + 1, i.max - 1, i.max, i.max // 2 + 1}
    return sorted(v for v in every if i.min <= v <= i.max)


def values(dtype, few=False):
    """A vector of the dtype's special values. `few`: about ten, for what takes three or more of them."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_complex:
        f = torch.finfo(dtype)
        parts = [0.0, -0.0, 1.0, -0.5, math.inf, math.nan] if few else [0.0, -0.0, 1.0, -0.5, 2.0, f.max, -f.tiny, math.inf, -math.inf, math.nan]
        parts = torch.tensor(parts, dtype=dtype.to_real())
        return torch.view_as_complex(torch.cartesian_prod(parts, parts).contiguous())
    if dtype.is_floating_point:
        some = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 28.0, math.inf, -math.inf, math.nan]
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return torch.tensor(some if few else _floats(dtype), dtype=wide).to(dtype)
    i = torch.iinfo(dtype)
    some = sorted({0, 1, 2, 3, 7, i.max, i.min} | ({-1, -2, i.min + 1} if i.min else set()))
    return torch.tensor(some if few else _ints(dtype), dtype=dtype)


NUMBERS = {
    "float": [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 2.5, 1e30, math.inf, -math.inf, math.nan],
    "int": [0, 1, -1, 2, -2, 3, 7, 31, 63, 64, -64],
    "bool": [False, True],
    "complex": [1j, complex(math.inf, -1.0), complex(0.0, math.nan)],
}


def grid(vectors):
    """Every combination of the vectors' elements, one tensor for each; and some elements more, so that vectors end unevenly."""
    places = torch.cartesian_prod(*(torch.arange(len(v)) for v in vectors)).view(-1, len(vectors))
    places = torch.cat([places, places[:13].flip(0)])
    return [v[places[:, i]] for i, v in enumerate(vectors)]


def flushed(t):
    """Subnormal numbers become zeros of their sign."""
    if not flushes(t.dtype):
        return t
    if t.is_complex():
        return torch.view_as_complex(flushed(parts(t)).contiguous())
    return torch.where(t.abs() < torch.finfo(t.dtype).tiny, torch.zeros_like(t).copysign(t), t)


def parts(t):
    """As real numbers."""
    t = t.detach()
    if t.is_conj() or t.is_neg():
        t = t.resolve_conj().resolve_neg()
    if t.dtype in FLOAT8:
        t = t.float()
    return torch.view_as_real(t) if t.is_complex() else t


TOLERANCES = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float32: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7)}


def agree(a, e, scale=1.0):
    """Which elements of `a` are right if `e` is: the same bits, or finite numbers that assert_close takes for equal."""
    if not e.is_floating_point() and not e.is_complex():
        return a == e
    is_complex, a, e = e.is_complex(), parts(a), parts(e)
    rtol, atol = TOLERANCES.get(e.dtype, (0, 0))
    a, e = a.double(), e.double()
    size = e.norm(dim=-1, keepdim=True) if is_complex else e.abs()
    near = (a - e).abs() <= atol + rtol * scale * size
    zero = (a == 0) & (e == 0) & (a.signbit() == e.signbit())
    same = torch.where((a == 0) & (e == 0), zero, (a == e) | (near & a.isfinite() & e.isfinite()) | (a.isnan() & e.isnan()))
    return same
