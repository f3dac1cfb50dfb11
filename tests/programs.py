"""Random programs: lines of Python over x0, x1, ..., made by hypothesis, which also shrinks them.

Lines are made from templates: text with holes such as ``{a}`` for a tensor. A line that the CPU refuses stays in the program, and
the device must refuse it too.

Values are small integers and halves of them, and products are cut, so that most arithmetic is exact and must be equal to the
bit. What isn't exact (`SMOOTH`, large sums) makes the storages that it reaches *rounded*: these are compared with a tolerance,
and nothing that jumps (comparisons, sorting, rounding: `SHARP`) is done with them.
"""

import functools
import math
import re

import hypothesis.strategies as st
import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false

FLOATS = torch.float32, torch.float64, torch.bfloat16, torch.float16
COMPLEX = torch.complex64, torch.complex128
INTEGERS = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
FRESH = "dim", "at", "to", "k", "s", "new"  # holes that are filled anew where they come again in a line
DTYPES = (torch.float32,) * 4 + (torch.int64,) * 2 + FLOATS + COMPLEX[:1] + INTEGERS + (torch.bool,)
SHAPES = (2, 3), (3, 2), (2, 3), (4,), (2, 2, 3), (2, 3, 2), (6,), (3, 3), (1, 3), (), (2, 1, 2, 2), (0, 2), (1,)
MOST_TENSORS = 12

# {a} {b} {c}: any tensor. {f}: floating or complex. {r}: real floating. {n}: no bool. {i}: integers. {l}: int64. {m}: bool.
# {like}: same shape as the first tensor. {dim}: a dimension of the first tensor. {at}: an index into it. {to}: a size.
# {order}: its dimensions in some order. {k}: a small number. {s}: a number. {new}: a new name.

VIEWS = """
{a}.transpose({dim}, {dim})
{a}.select({dim}, {at})
{a}.narrow({dim}, {at}, {to})
{a}[{at}:]
{a}[..., ::2]
{a}[..., {at}:{to}]
{a}[{at}]
{a}[..., {at}]
{a}[:, None]
{a}.unsqueeze({dim})
{a}.squeeze()
{a}.squeeze({dim})
{a}.expand({to}, *{a}.shape)
{a}.unsqueeze(0).expand(2, *{a}.shape)
{a}.expand_as({like})
{a}.diagonal()
{a}.diagonal({k}, 0, 1)
{a}.unfold({dim}, {to}, 1)
{a}.as_strided({strided})
{a}.view(-1)
{a}.view(*{a}.shape[::-1])
{a}.view({a}.shape)
{a}.reshape(-1)
{a}.reshape(*{a}.shape[::-1])
{a}.flatten()
{a}.unflatten({dim}, (-1, {to}))
{a}.movedim({dim}, {dim})
{a}.permute({order})
{a}.permute({order})
{a}.mT
{a}.mH
{a}.detach()
{a}.data
{a}.chunk(2, {dim})[-1]
{a}.split({to}, {dim})[0]
{a}.unbind({dim})[{at}]
{a}.tensor_split(2)[1]
{a}.view_as({like})
torch.view_as_real({a})
{a}.real
{a}.imag
{a}.conj()
torch._neg_view({n})
{a}.swapaxes({dim}, {dim})
{a}.hsplit(1)[0]
torch.broadcast_tensors({a}, {b})[0]
torch.atleast_2d({a})
torch.ops.aten.alias({a})
"""

# New tensors, exactly.
PURE = """
{a}.clone()
{a}.contiguous()
{a}.to(torch.{dtype})
{a}.to(torch.{dtype}, copy=True)
{a}.clone(memory_format=torch.preserve_format)
{a}.clone(memory_format=torch.contiguous_format)
{a}.flip({dim})
{a}.roll({k}, {dim})
{a}.repeat(2, *[1] * {a}.dim())
{a}.tile(2)
{a}.rot90()
{a}.tril({k})
{a}.triu({k})
{a}.index_select({dim}, {index})
{a}.gather({dim}, {indices})
{a}.take({places})
{a}[{index}]
{a}[..., {index}]
{a}[{index}, {index}]
{a}.take_along_dim({indices}, {dim})
{a}.masked_select({mask})
{a}[{mask}]
{a}.repeat_interleave(2, {dim})
torch.cat([{a}, {b}], {dim})
torch.stack([{a}, {like}], {dim})
torch.where({mask}, {a}, {like})
torch.where({mask}, {a}, {s})
{a}.masked_fill({mask}, {s})
{a}.index_fill({dim}, {index}, {s})
{a}.index_copy({dim}, {index}, {a})
{a}.scatter({dim}, {indices}, {s})
{a}.clone().select_scatter({a}.select({dim}, {at}), {dim}, {at})
{a}.clone().slice_scatter({b}, {dim}, {at})
{a}.clone().diagonal_scatter({a}.diagonal())
{n} + {b}
{n} - {b}
{n} + {s}
{s} - {n}
{n} * {s}
({n} * {b}).clamp(-8, 8)
torch.add({n}, {like}, alpha={k})
-{n}
{n}.abs()
{n}.square().clamp(-8, 8)
{a} * 2 + {a}
({a} + {b}) * ({a} - {s})
torch.zeros_like({a})
torch.ones_like({a})
torch.full_like({a}, {s})
{a}.new_zeros({a}.shape)
{a}.new_full(({to},), {s})
torch.arange({to}, device=dev)
torch.eye({to}, device=dev)
torch.full(({to}, {at}), {s}, device=dev)
torch.tensor([1, {k}], device=dev)
torch.tensor({a}.tolist(), dtype={a}.dtype, device=dev)
{a}.numpy(force=True).tolist() and {a}.clone()
{n} + {a}.flatten()[0].item()
torch.nn.functional.pad({a}, (1, {to}))
torch.nn.functional.one_hot({l}.remainder(5), 5)
torch.repeat_interleave({a}.flatten())
torch._foreach_add([{n}, {like}], {k})[1]
torch.func.functional_call(torch.nn.Identity(), {{}}, ({a},))
torch.func.vmap(lambda t: t + t)({a})
torch.utils.checkpoint.checkpoint(lambda t: t * 2, {a}, use_reentrant=False)
"""

# New tensors that jump: not of what is rounded.
SHARP = """
{a}.view(torch.{dtype})
{a}.view(torch.{dtype})
{a} == {b}
{a} != {s}
{n} < {b}
{n} >= {s}
{a}.logical_not()
{a}.logical_and({b})
{a}.bool()
{a}.any({dim})
{a}.all()
{n}.maximum({b})
{n}.minimum({b})
{n}.clamp(-2, 2)
{n}.clamp({like}, None)
{n}.relu()
{n}.sign()
{n}.amax({dim})
{n}.amin({dim}, keepdim=True)
{n}.max()
{n}.max({dim})[0]
{n}.max({dim})[1]
{n}.argmin()
{n}.argmax({dim})
{n}.sort({dim}, stable=True)[0]
{n}.sort({dim}, descending=True, stable=True)[1]
{n}.topk(1, {dim})[0]
{n}.cummax({dim})[0]
{n}.unique()
{n}.floor_divide({b}.clamp(1, 5))
{n}.remainder(3)
{n}.fmod({b}.clamp(1, 5))
{r}.floor()
{r}.round()
{r}.trunc()
{a}.nonzero()
{a}.count_nonzero({dim})
torch.isin({a}, {b})
torch.isfinite({a})
{i} & {i}
{i} ^ {k}
{i} << 1
{i} >> {k}
~{i}
{m} | {m}
{n}.abs().to(torch.{dtype})
torch.searchsorted(torch.arange(5, device=dev), {i})
torch.bincount({l}.flatten().abs().clamp(max=6))
{n}.heaviside({like})
torch.histc({r}, 4, -4, 4)
torch.bucketize({n}, torch.arange(5, device=dev))
"""

# New tensors that are exact if nothing is large.
SUMS = """
{a}.sum()
{a}.sum({dim})
{a}.sum({dim}, keepdim=True, dtype=torch.float32)
{a}.cumsum({dim})
{n}.trace()
{n} @ {b}
{n}.outer({b}).clamp(-8, 8)
{n}.dot({b})
torch.matmul({n}, {n}.mT)
torch.einsum('...i,...i->...', {n}, {n})
torch.addmm({n}, {b}, {c})
torch.nn.functional.linear({n}, {b})
torch.nn.functional.avg_pool1d({r}, 1) if {r}.dim() > 1 else {r} + 0
{r}.nansum()
{n}.scatter_add({dim}, {indices}, {like})
{n}.index_add({dim}, {index}, {n})
{n}.scatter_reduce({dim}, {indices}, {like}, 'sum')
{n}.index_put(({index},), {n}, accumulate=True)
torch.tensordot({n}, {b}, 1)
"""

# New tensors that are rounded.
SMOOTH = """
{n}.mean()
{r}.mean({dim})
{n} / {s}
{n} / ({b} * {b} + 1)
{n}.sigmoid()
{n}.tanh()
{r}.softmax({dim})
{r}.log_softmax({dim})
{r}.clamp(-8, 8).exp()
{r}.abs().add(1).log()
{r}.abs().add(1).sqrt()
torch.nn.functional.gelu({r})
torch.nn.functional.layer_norm({r}, {r}.shape[-1:])
{r}.logsumexp({dim})
{f}.abs().add(1).reciprocal()
{r}.lerp({like}, 0.25)
torch.addcmul({n}, {like}, {like}, value=0.5).tanh()
{r}.var({dim})
{r}.cumprod({dim}).clamp(-8, 8)
"""

WRITES = """
{a}.fill_({s})
{a}.zero_()
{n}.add_({k})
{n}.add_({b})
{n}.sub_({b}, alpha=2)
{n}.mul_({two})
{n}.neg_()
{a}.copy_({b})
{a}.copy_({a}.flip(0))
{a}[{at}] = {s}
{a}[{at}:] = {b}
{a}[..., ::2] = {s}
{a}[{index}] = {s}
{a}[{mask}] = {s}
{a}[{mask}] = {b}
{a}[{index}, {index}] = {b}
{a}[..., {at}] += {k}
{a}.masked_fill_({mask}, {s})
{a}.masked_scatter_({mask}, {like}.clone())
{a}.index_fill_({dim}, {index}, {s})
{a}.index_copy_({dim}, {at}, {b})
{a}.scatter_({dim}, {indices}, {s})
{a}.scatter_({dim}, {indices}, {like})
{a}.t_()
{a}.transpose_({dim}, {dim})
{a}.squeeze_()
{a}.unsqueeze_({dim})
{a}.as_strided_({strided})
{a}.swapaxes_({dim}, {dim})
{a}.detach_()
{a}.requires_grad_()
{a}.resize_({a}.numel() // 2)
{a}.set_({b})
{a}.data = {b}
{a}.data.add_({k})
{a}.detach().mul_({two})
{a}.fill_diagonal_({s})
{a}.put_({places}, {s} * torch.ones_like({places}, dtype={a}.dtype))
{a}.tril_()
{a}.conj_physical_()
{a} = {b}
{a} += {k}
{n} -= {b}
{i} &= {k}
{i} |= {i}
torch.add({n}, {b}, out={c})
torch.mul({n}, {two}, out={a})
torch.neg({n}, out={b})
torch.cat([{a}, {b}], out={c})
torch.index_select({a}, {dim}, {index}, out={b})
torch._foreach_add_([{n}, {b}], {k})
torch._foreach_mul_([{n}, {b}], {two})
torch._foreach_copy_([{a}, {like}], [{like}, {a}])
torch._foreach_zero_([{a}, {b}])
for _ in range(3): {n}.add_({b}).sub_({k})
for _ in range(4): {n} = {n} + {k}
with torch.no_grad(): {n}.add_({k})
with torch.no_grad(): {new} = {a}.view(-1); {new}.fill_({s})
with torch.inference_mode(): {new} = {a} + {a}
with torch.inference_mode(): {new} = {a}[{at}:]
with torch.inference_mode(): {a}.fill_({s})
{new}, {new} = {a}.chunk(2)
{new}, {new} = torch.unbind({a})
{new}, {new} = {n}.max({dim})
{a}.data, {b}.data = {b}.data, {a}.data
torch.utils.swap_tensors({a}, {b})
del {a}
del {a}
"""

# Writes that jump, and writes of sums.
SHARP_WRITES = """
{a}.set_({b}.untyped_storage(), 0, ({b}.untyped_storage().nbytes() // {a}.element_size(),), (1,))
{a}.untyped_storage().copy_({b}.untyped_storage())
{n}.clamp_(-2, 2)
{n}.relu_()
{r}.abs_()
{n}.remainder_(3)
{n}.floor_divide_(2)
{n}.mul_({b}).clamp_(-8, 8)
{a}.logical_not_()
{n}.lt_({b})
{a}.eq_({b})
{a}[{a} == {s}] = {k}
{a}.masked_fill_({a} != 0, {s})
torch.sort({n}, {dim}, stable=True, out=({b}, {l}))
torch.gt({n}, {k}, out={m})
torch.maximum({n}, {b}, out={c})
torch.amax({r}, {dim}, out={b})
"""
SUM_WRITES = """
{n}.scatter_add_({dim}, {indices}, {like})
{n}.index_add_({dim}, {index}, {b})
{n}.index_put_(({index},), {b}, accumulate=True)
{n}.cumsum_({dim})
{n}.addmm_({b}.clone(), {c}.clone())
torch.sum({n}, {dim}, out={b})
torch.mm({n}, {b}, out={c})
{n}.put_({places}, torch.ones_like({places}, dtype={n}.dtype), accumulate=True)
{n}.scatter_reduce_({dim}, {indices}, {like}, 'sum')
"""
SMOOTH_WRITES = """
{r}.sigmoid_()
{r}.div_(3)
{r}.tanh_()
torch.mean({r}, {dim}, out={b})
{r}.lerp_({like}, 0.5)
"""


def lines_of(text, **kind):
    return [(line, kind) for line in text.strip().splitlines()]


GROUPS = [
    lines_of(VIEWS, makes=True),
    lines_of(VIEWS, makes=True),  # twice as likely as others
    lines_of(PURE, makes=True),
    lines_of(SHARP, makes=True, sharp=True),
    lines_of(SUMS, makes=True, sums=True),
    lines_of(SMOOTH, makes=True, smooth=True),
    lines_of(WRITES),
    lines_of(WRITES),
    lines_of(SHARP_WRITES, sharp=True),
    lines_of(SUM_WRITES, sums=True),
    lines_of(SMOOTH_WRITES, smooth=True),
]
KINDS = {
    "f": lambda t: t.is_floating_point() or t.is_complex(),
    "r": torch.Tensor.is_floating_point,
    "n": lambda t: t.dtype != torch.bool,
    "i": lambda t: t.dtype in INTEGERS,
    "l": lambda t: t.dtype == torch.int64,
    "m": lambda t: t.dtype == torch.bool,
}


def made(dtype, shape, start, device, grad=False):
    """A tensor with small numbers in it; of floating ones some are halves."""
    n = math.prod(shape)
    numbers = (torch.arange(start, start + 5 * n, 5) % 11 - 4).reshape(shape)
    numbers = numbers > 0 if dtype == torch.bool else (numbers / 2).to(dtype) if dtype.is_floating_point else numbers.to(dtype)
    return numbers.to(device, copy=True).requires_grad_(grad)


class Run:
    """A program on a device: its tensors, and what its lines were refused with."""

    def __init__(self, device):
        self.leaves, self.errors = [], []
        self.names = {"torch": torch, "dev": device, "leaf": self.leaf}

    def leaf(self, dtype, shape, start, grad=False):
        t = made(dtype, shape, start, self.names["dev"], grad)
        self.leaves += [t] if grad else []
        return t.clone() if grad else t

    def line(self, line):
        try:
            exec(line, self.names)
            self.errors.append(None)
        except Exception as error:  # noqa: BLE001 - whatever it is, both must say it
            self.errors.append(error)

    def tensors(self):
        return {name: t for name, t in self.names.items() if re.fullmatch(r"x\d+", name) and isinstance(t, torch.Tensor)}

    @functools.cached_property
    def gradients(self):
        """The gradients of the leaves, for a gradient of all that depends on them; or the error."""
        ends = [t for t in self.tensors().values() if KINDS["f"](t) and t.requires_grad and not t.is_inference()]
        if not ends or not self.leaves:
            return []
        weights = [made(t.dtype, t.shape, k, t.device) for k, t in enumerate(ends)]
        try:
            return torch.autograd.grad(ends, self.leaves, weights, allow_unused=True)
        except Exception as error:  # noqa: BLE001
            return error


class Maker(Run):
    """Makes a program line by line, by running it on the CPU."""

    def __init__(self, draw):
        super().__init__("cpu")
        self.draw, self.lines, self.rounded, self.count = draw, [], set(), 0

    def one(self, options):
        return self.draw(st.sampled_from(options))

    def number(self, low, high):
        return self.draw(st.integers(low, high))

    def start(self):
        for _ in range(self.number(2, 4)):
            dtype, shape = self.one(DTYPES), self.one(SHAPES)
            grad = (dtype.is_floating_point or dtype.is_complex) and self.number(0, 1)
            self.add(f"{self.new_name()} = leaf({dtype}, {shape}, {self.number(0, 10)}{', grad=True' if grad else ''})", {})

    def new_name(self):
        self.count += 1
        return f"x{self.count - 1}"

    # ---- holes ----------------------------------------------------------------------------------------------------

    def hole(self, match):
        hole, used = match.group(1), self.used
        if hole in ("a", "b", "c", *KINDS):
            if hole not in used:
                names = [n for n, t in self.tensors().items() if KINDS.get(hole, bool_true)(t)]
                used[hole] = self.one(names)  # an IndexError of hypothesis' own if there is none: see `statement`
            return used[hole]
        first = self.names[next(iter(used.values()))] if used else torch.zeros(())
        if hole in FRESH:
            return str(getattr(self, "hole_" + hole)(first))
        if hole not in self.same:
            self.same[hole] = str(getattr(self, "hole_" + hole)(first))
        return self.same[hole]

    def hole_like(self, t):
        names = [n for n, other in self.tensors().items() if other.shape == t.shape and other is not t]
        return self.one([*names, next(iter(self.used.values()))])

    def hole_dim(self, t):
        return self.number(-1, max(t.dim() - 1, 0))

    def hole_order(self, t):
        return self.draw(st.permutations(range(t.dim())))

    def hole_at(self, t):
        return self.number(-1, 1)

    def hole_to(self, t):
        return self.number(1, 3)

    def hole_k(self, t):
        return self.number(-2, 3)

    def hole_two(self, t):
        return self.one((-1, 2, 0, 1, 0.5))

    def hole_s(self, t):
        return self.one((1, -2, 3, 0, 0.5, -1.5, True))

    def hole_dtype(self, t):
        return str(self.one(DTYPES)).removeprefix("torch.")

    def hole_new(self, t):
        return self.new_name()

    def hole_strided(self, t):
        sizes = self.draw(st.lists(st.integers(1, 3), max_size=3))
        strides = [self.number(0, 3) for _ in sizes]
        offset = self.one((None, 0, 1, 2))
        return f"{tuple(sizes)}, {tuple(strides)}" + ("" if offset is None else f", {offset}")

    def hole_index(self, t):
        size = min(t.shape, default=1)
        numbers = self.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=3)) if size else []
        return f"torch.tensor({numbers}, dtype=torch.int64, device=dev)"

    def hole_indices(self, t):
        names = [name for name, other in self.tensors().items() if other.shape == t.shape and not self.is_rounded(other)]
        return f"{self.one(names)}.to(torch.int64).remainder({max(min(t.shape, default=1), 1)})" if names else "{}"

    def hole_places(self, t):
        numbers = self.draw(st.lists(st.integers(-t.numel(), t.numel() - 1), min_size=1, max_size=3, unique=True)) if t.numel() else []
        return f"torch.tensor({numbers}, dtype=torch.int64, device=dev)"

    def hole_mask(self, t):
        shape = t.shape if self.number(0, 2) else t.shape[-1:]
        return f"(torch.arange({math.prod(shape)}, device=dev) % {self.number(2, 3)} == 0).reshape({tuple(shape)})"

    # ---- lines ----------------------------------------------------------------------------------------------------

    def is_rounded(self, t):
        return t.untyped_storage()._cdata in self.rounded

    def statement(self):
        template, kind = self.one(self.one(GROUPS))
        self.used, self.same = {}, {}
        present = set(re.findall(r"\{(\w+)\}", template)) & set(KINDS)
        if any(not any(KINDS[k](t) for t in self.tensors().values()) for k in present):
            return
        before = self.count
        line = re.sub(r"(?<!\{)\{(\w+)\}(?!\})", self.hole, template).replace("{{", "{").replace("}}", "}")
        read = [self.names[n] for n in used_in(line) if n in self.names]
        halfway = "_foreach" in line and (len({t.dtype for t in read}) > 1 or any(t.is_inference() for t in read))
        if halfway or "out=" in line and self.is_open(line):
            return  # the CPU refuses lists half way
        if kind.get("makes"):
            line = f"{self.new_name()} = {line}"
        if not self.add(line, kind):
            self.count = before

    def is_open(self, line):
        """Whether what an out= gets is open: where an argument is, or of another dtype, but elementwise."""
        given, out = line.split("out=")
        if len({self.names[n].dtype for n in used_in(line)}) > 1 and not re.match(r"torch\.(add|mul|sum)\(", line):
            return True
        where = lambda text: {self.names[n].untyped_storage()._cdata for n in used_in(text)}  # noqa: E731
        elementwise = re.match(r"torch\.(add|mul|neg|maximum)\(", line) and len({self.names[n].shape for n in used_in(line)}) == 1
        return not elementwise and bool(where(given) & where(out))

    def add(self, line, kind):
        """Runs a line, unless what it would do is not defined. Whether it is in the program."""
        read = [self.names[n] for n in dict.fromkeys(used_in(line)) if n in self.tensors()]
        rounded = any(map(self.is_rounded, read))
        if kind.get("sharp") and (rounded or any(t.is_complex() and not t.numel() for t in read)):
            return False  # complex numbers have no order, but where there are none the CPU does not look
        large = kind.get("sums") and any(t.dtype in (torch.bfloat16, torch.float16) or magnitude(t) > 2**20 for t in read)
        if any(magnitude(t) > 2**40 for t in read) or not kind.get("makes") and is_open(line, read):
            return False
        self.line(line)
        self.lines.append(line)
        if rounded or large or kind.get("smooth"):
            written = used_in(line)[:1] if kind.get("makes") else used_in(line)
            for name, t in self.tensors().items():
                if name in written:
                    self.rounded.add(t.untyped_storage()._cdata)
        return True


def used_in(line):
    return re.findall(r"x\d+", line)


def bool_true(_):
    return True


def is_open(line, tensors):
    """Whether what a line writes is open: elements share memory with others, or with what is read, and PyTorch does not see it."""
    if re.search(r"^(x\d+)\[.*= \1$", line):
        return True
    warns = "[" in line or "mask" in line or "put" in line
    if any(overlaps_itself(t, warns) for t in tensors):
        return True
    places = [(t.untyped_storage()._cdata, t.shape, t.stride(), t.storage_offset()) for t in tensors]
    sparse = [not is_non_overlapping_and_dense_or_false(t) for t in tensors]
    return any(a[0] == b[0] and a != b and (sparse[i] or sparse[j]) for i, a in enumerate(places) for j, b in enumerate(places[:i]))


def overlaps_itself(t, even_expanded):
    """Whether it has elements in one place, which PyTorch finds only where a stride is 0; and then some operators only warn."""
    if torch._debug_has_internal_overlap(t) < 2:
        return even_expanded and torch._debug_has_internal_overlap(t) == 1
    places = torch.arange(t.untyped_storage().nbytes() // t.element_size()).as_strided(t.shape, t.stride(), t.storage_offset())
    return places.unique().numel() < t.numel()


def magnitude(t):
    """The sum of all absolute values, of which all that is made of them is smaller."""
    if not (t.is_floating_point() or t.is_complex()):
        return 0
    total = t.detach().abs().double().sum().item()
    return total if math.isfinite(total) else 0


@st.composite
def programs(draw):
    """A program, and which of its tensors are rounded at its end."""
    maker = Maker(draw)
    maker.start()
    for _ in range(maker.number(1, 14)):
        if maker.tensors() and len(maker.tensors()) <= MOST_TENSORS:
            maker.statement()
    return maker.lines, {name for name, t in maker.tensors().items() if maker.is_rounded(t)}
