"""How a program's arrays are split over devices: annotations that XLA's partitioner resolves (GSPMD).

A sharding is its text: ``{replicated}``, or ``{devices=[1,8]<=[8]}``: dimension 1 in 8 parts, one on each device.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence

REPLICATED = "{replicated}"
MODES = ("replicated", "data", "fsdp")


def split(rank: int, dim: int, devices: int) -> str:
    """The sharding that splits dimension ``dim`` of ``rank`` over all devices."""
    if not 0 <= dim < rank:
        raise ValueError(f"an array of {rank} dimensions has no dimension {dim}")
    parts = ",".join(str(devices if d == dim else 1) for d in range(rank))
    return f"{{devices=[{parts}]<=[{devices}]}}"


def largest_split(shape: Sequence[int], devices: int) -> str:
    """Splits the largest dimension that divides by the number of devices; replicated, if none does."""
    best = max((d for d in range(len(shape)) if shape[d] and shape[d] % devices == 0), key=lambda d: shape[d], default=None)
    return REPLICATED if best is None or devices == 1 else split(len(shape), best, devices)


def batch_split(shape: Sequence[int], devices: int, name: str) -> str:
    """Splits dimension 0. A 0-dim array is replicated; raises ValueError where the batch does not divide."""
    if not shape or devices == 1:
        return REPLICATED
    if shape[0] % devices:
        raise ValueError(
            f"the batch of '{name}', {shape[0]}, does not divide by the {devices} devices: choose a multiple of {devices}"
        )
    return split(len(shape), 0, devices)


def choose(kind: str, shape: Sequence[int], mode: str, devices: int, name: str) -> str:
    """The sharding of an input: ``kind`` is "batch", "state" (a parameter, or what an optimizer keeps of it) or "other"."""
    if mode not in MODES:
        raise ValueError(f"sharding is one of {', '.join(MODES)}, got {mode!r}")
    if mode != "replicated" and kind == "batch":
        return batch_split(shape, devices, name)
    if mode == "fsdp" and kind == "state":
        return largest_split(shape, devices)
    return REPLICATED


# ---- a program's text ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Array:
    """A parameter or result of @main: its name ("" for results), MLIR type and attributes (without braces)."""

    name: str
    type: str
    attributes: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(d) for d in re.findall(r"(\d+)x", self.type[len("tensor<") :]))

    @property
    def element(self) -> str:
        return re.fullmatch(r"tensor<(?:\d+x)*(.*)>", self.type).group(1)

    @property
    def alias(self) -> int | None:
        """The result that may take this parameter's memory."""
        found = re.search(r"tf\.aliasing_output\s*=\s*(\d+)", self.attributes)
        return int(found.group(1)) if found else None


_OPEN, _CLOSE = "([{<", ")]}>"


def _pieces(text: str, start: int) -> tuple[list[str], int]:
    """Splits the parenthesised list that begins at ``start`` at its commas; gives the pieces and the position after it."""
    depth, pieces, begin, quoted = 0, [], start + 1, False
    for i in range(start, len(text)):
        c = text[i]
        if c == '"' and text[i - 1] != "\\":
            quoted = not quoted
        if quoted or (c == ">" and text[i - 1] == "-"):
            continue
        if c in _OPEN:
            depth += 1
        elif c in _CLOSE:
            depth -= 1
            if not depth:
                last = text[begin:i].strip()
                return pieces + ([last] if last else []), i + 1
        elif c == "," and depth == 1:
            pieces.append(text[begin:i].strip())
            begin = i + 1
    raise ValueError("the program's text ends within @main's signature")


def _array(piece: str, named: bool) -> Array:
    name, rest = (p.strip() for p in piece.split(":", 1)) if named else ("", piece)
    type_, brace, attributes = rest.partition("{")
    return Array(name, type_.strip(), attributes.rstrip().removesuffix("}").strip() if brace else "")


@dataclasses.dataclass
class Signature:
    """@main's parameters and results, and where in the text they are."""

    parameters: list[Array]
    results: list[Array]
    begin: int
    end: int

    def text(self) -> str:
        def one(a: Array) -> str:
            return f"{a.name + ': ' if a.name else ''}{a.type}{' {' + a.attributes + '}' if a.attributes else ''}"

        return f"({', '.join(map(one, self.parameters))}) -> ({', '.join(map(one, self.results))})"


def signature(program: str) -> Signature:
    """Reads @main's signature. Raises ValueError if there is none."""
    found = re.search(r"func\.func\s+(?:public\s+)?@main\s*(?=\()", program)
    if not found:
        raise ValueError("the program has no function @main")
    parameters, end = _pieces(program, found.end())
    results: list[str] = []
    arrow = re.compile(r"\s*->\s*").match(program, end)
    if arrow:
        end = arrow.end()
        if program[end] == "(":
            results, end = _pieces(program, end)
        else:
            lone = re.compile(r"tensor<[^<>]*(?:<[^<>]*>)?[^<>]*>").match(program, end)
            results, end = [lone.group()], lone.end()
    return Signature([_array(p, True) for p in parameters], [_array(r, False) for r in results], found.end(), end)


def sharding_of(a: Array) -> str:
    """The sharding that the attributes tell; replicated, if none."""
    found = re.search(r'mhlo\.sharding\s*=\s*"([^"]*)"', a.attributes)
    return found.group(1) if found else REPLICATED


def annotate(program: str, parameter: Callable[[int, Array], str], result: Callable[[int, Array], str | None]) -> str:
    """The program with a sharding on each parameter, and on each result for which ``result`` gives one.

    A result that may take a parameter's memory gets that parameter's sharding.
    """
    s = signature(program)
    shardings = [parameter(i, a) for i, a in enumerate(s.parameters)]
    aliased = {a.alias: shardings[i] for i, a in enumerate(s.parameters) if a.alias is not None}

    def add(a: Array, sharding: str | None) -> None:
        if sharding:
            a.attributes += ("" if not a.attributes else ", ") + f'mhlo.sharding = "{sharding}"'

    for a, sharding in zip(s.parameters, shardings, strict=True):
        add(a, sharding)
    for i, a in enumerate(s.results):
        add(a, aliased.get(i) or result(i, a))
    return program[: s.begin] + s.text() + program[s.end :]
