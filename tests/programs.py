"""Random programs: lines of Python over x0, x1, ..., made by hypothesis, which also shrinks them.

Lines are made from templates.py: text with holes such as ``{a}`` for a tensor. A line that the CPU refuses stays in the program, and
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
from templates import GROUPS
from torch._prims_common import is_non_overlapping_and_dense_or_false

FLOATS = torch.float32, torch.float64, torch.bfloat16, torch.float16
COMPLEX = torch.complex64, torch.complex128
INTEGERS = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
FRESH = "dim", "at", "to", "k", "s", "new"  # holes that are filled anew where they come again in a line
DTYPES = (torch.float32,) * 4 + (torch.int64,) * 2 + FLOATS + COMPLEX[:1] + INTEGERS + (torch.bool,)
SHAPES = (2, 3), (3, 2), (2, 3), (4,), (2, 2, 3), (2, 3, 2), (6,), (3, 3), (2, 2, 2), (1, 3), (), (2, 1, 2, 2), (0, 2), (1,)
MOST_TENSORS = 12
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
                names = [n for n, t in self.tensors().items() if KINDS.get(hole, anything)(t)]
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
        if halfway or "out=" in line and self.out_is_open(line):
            return  # the CPU refuses lists half way
        if kind.get("makes"):
            line = f"{self.new_name()} = {line}"
        if not self.add(line, kind):
            self.count = before

    def out_is_open(self, line):
        """Whether what an out= gets is open: where an argument is, but elementwise; or of another dtype, which the CPU resizes, then refuses."""
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
        if kind.get("sharp") and (rounded or any(t.is_complex() and (not t.numel() or not t.dim()) for t in read)):
            return False  # complex numbers have no order, but where there are none, or one, the CPU does not look
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


def anything(_):
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
