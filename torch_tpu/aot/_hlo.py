"""What the compiler writes about a program: its instructions, which buffers it has, and when each is in use.

All of it is text that XLA writes for people, so it is read with care: what can't be understood is left out.
"""

import bisect
import dataclasses
import pathlib
import re
from collections import defaultdict
from collections.abc import Iterator

_BITS = {"pred": 8, "bf16": 16, "f16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128, "token": 0}


def element_bits(name: str) -> int:
    if name in _BITS:
        return _BITS[name]
    found = re.match(r"[a-z]+(\d+)", name)
    return int(found.group(1)) if found else 0


def array_bytes(shape: str) -> list[int]:
    """The bytes of each array of a shape such as ``(bf16[8,128]{1,0:T(8,128)}, u32[])``, without padding."""
    sizes = []
    for element, dims in re.findall(r"\b([a-z]+\d*(?:e\dm\d\w*)?)\[([\d,]*)\]", shape):
        count = 1
        for d in dims.split(","):
            count *= int(d) if d else 1
        sizes.append((count * element_bits(element) + 7) // 8)
    return sizes


# ---- instructions ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Instruction:
    name: str
    shape: str
    opcode: str
    rest: str  # operands and attributes


@dataclasses.dataclass
class Module:
    computations: dict[str, list[Instruction]]
    entry: str


_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")


def _shape_end(text: str, start: int) -> int:
    if text[start : start + 1] != "(":
        end = text.find(" ", start)
        return end if end >= 0 else len(text)
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if not depth:
            return i + 1
    return len(text)


def parse_module(text: str) -> Module:
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        if current is None:
            head = _HEAD.match(line)
            if head:
                current = computations.setdefault(head.group(2), [])
                entry = head.group(2) if head.group(1) else entry
            continue
        if line.startswith("}"):
            current = None
            continue
        found = _LINE.match(line)
        if not found:
            continue
        end = _shape_end(line, found.end())
        opcode, paren, rest = line[end:].strip().partition("(")
        if paren:
            current.append(Instruction(found.group(1), line[found.end() : end], opcode, rest))
    return Module(computations, entry)


# ---- collectives ----------------------------------------------------------------------------------------------------

KINDS = (
    "all-gather",
    "reduce-scatter",
    "all-reduce",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)


@dataclasses.dataclass
class Collective:
    """One kind of exchange between devices: how often, what it handles (bytes of one device's whole arrays), and what a
    device has to send for it at least, each device once around a ring."""

    kind: str
    count: int = 0
    bytes: int = 0
    sent: float = 0.0


def group_size(rest: str, devices: int) -> int:
    """How many devices take part, from an instruction's replica_groups."""
    found = re.search(r"replica_groups=\{\{([\d,]+)\}", rest)
    if found:
        return len(found.group(1).split(","))
    found = re.search(r"replica_groups=\[\d+,(\d+)\]", rest)
    if found:
        return int(found.group(1))
    found = re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", rest)
    if found:
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", found.group(1)))
        size = 1
        for axis in re.findall(r"'(\w+)'", found.group(2)):
            size *= int(sizes.get(axis, 1))
        return size
    return devices


def _sent(kind: str, size: int, n: int) -> float:
    if n <= 1 and kind != "collective-permute":
        return 0.0
    share = (n - 1) / n if n else 0.0
    return {"all-reduce": 2 * share, "collective-permute": 1.0, "collective-broadcast": 1.0}.get(kind, share) * size


def _called(rest: str) -> list[tuple[str, int]]:
    """Computations that an instruction runs, and how often."""
    trips = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', rest)
    times = int(trips.group(1)) if trips else 1
    out = [(name, 1) for name in re.findall(r"\bcalls=%?([\w.\-]+)", rest)]
    out += [(name, times) for name in re.findall(r"\bbody=%?([\w.\-]+)", rest)]
    for names in re.findall(r"\b(?:branch|called)_computations=\{([^}]*)\}", rest):
        out += [(name.strip().lstrip("%"), 1) for name in names.split(",")]
    return out


def collectives(module: Module, devices: int) -> list[Collective]:
    """The program's collectives, by kind; those in loops as often as they run, where the compiler knows that."""
    found: dict[str, Collective] = {}

    def visit(name: str, times: int) -> None:
        # On a TPU a reduce-scatter is a fusion of an all-reduce and a slice, which is recognised by its name.
        is_scatter = name.startswith("all-reduce-scatter")
        for i in module.computations.get(name, ()):
            if i.opcode.endswith(("-update", "-done")):
                continue  # of what was counted where it began
            for callee, runs in _called(i.rest):
                visit(callee, times * runs)
            kind = i.opcode.removesuffix("-start")
            if kind not in KINDS:
                continue
            arrays = array_bytes(i.shape)
            size = sum(arrays) if kind == "all-reduce" or not i.opcode.endswith("-start") else max(arrays, default=0)
            n = group_size(i.rest, devices)
            if kind == "reduce-scatter":
                size *= n  # the result is a part
            if kind == "all-reduce" and is_scatter:
                kind = "reduce-scatter"
            c = found.setdefault(kind, Collective(kind))
            c.count += times
            c.bytes += size * times
            c.sent += _sent(kind, size, n) * times

    visit(module.entry, 1)
    return sorted(found.values(), key=lambda c: -c.sent)


PHASES = ("forward", "backward", "optimizer")

# ---- buffers --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Buffer:
    """Memory of one value. ``parameter``: the program's parameter that it is. ``begin``, ``end``: when it is in use, as
    positions in the schedule. ``place``: allocation and offset."""

    name: str
    size: int
    shape: str
    parameter: int | None
    begin: int = 0
    end: int = 0
    label: str = ""  # what made it, if known: phase, module and operator
    place: tuple[int, int] = (0, 0)


_ALLOCATION = re.compile(r"^allocation (\d+): size \d+(.*)$")
_VALUE = re.compile(r"^ value: <\d+ (\S+) @\d+> \(size=(\d+),offset=(\d+)\): (.*)$")
_RANGE = re.compile(r"^\s+(\S+):(\d+)-(\d+)$")


def _key(name: str) -> str:
    return name if name.endswith("}") else name + "{}"


def parse_buffers(assignment: str) -> list[Buffer]:
    """The buffers in the device's main memory: those with a color are in faster, smaller ones."""
    found: dict[str, Buffer] = {}
    parameter, skip, allocation = None, False, 0
    for line in assignment.splitlines():
        head = _ALLOCATION.match(line)
        if head:
            allocation, attributes = int(head.group(1)), head.group(2)
            skip = ", color " in attributes or "thread-local" in attributes
            number = re.search(r", parameter (\d+)", attributes)
            parameter = int(number.group(1)) if number else None
            continue
        value = _VALUE.match(line)
        if value and not skip:
            name, size, offset, shape = value.groups()
            found.setdefault(_key(name), Buffer(_key(name), int(size), shape, parameter, place=(allocation, int(offset))))
    return list(found.values())


def labels(module: Module) -> dict[str, str]:
    """What the program's instructions come from, where it was said: "backward layers.3.mlp aten::mm"."""
    out = {}
    for i in module.computations.get(module.entry, ()):
        found = re.search(r'op_name="([^"]*)"', i.rest)
        if found:
            out[i.name] = found.group(1)
    return out


def parse_sequence(text: str) -> list[str]:
    """The instructions in the order in which they run."""
    return re.findall(r"^    \d+:(\S+)$", text, re.M)


def parse_ranges(text: str) -> tuple[dict[str, tuple[int, int]], int]:
    """When each buffer is in use, and how long the schedule is."""
    ranges, inside, last = {}, False, 0
    for line in text.splitlines():
        if line.startswith("  ") and not line.startswith("   "):
            inside = line.strip() == "BufferLiveRange:"
            continue
        found = _RANGE.match(line) if inside else None
        if found:
            begin, end = int(found.group(2)), int(found.group(3))
            ranges[_key(found.group(1))] = (begin, end)
            last = max(last, end)
    return ranges, last


@dataclasses.dataclass
class Memory:
    """Memory in use over the schedule: arguments all the time, the rest at each of ``positions``."""

    argument_bytes: int
    positions: list[int]
    temporary_bytes: list[int]
    length: int
    largest: list[Buffer]  # in use at the peak, largest first
    phases: list[tuple[int, str]] = dataclasses.field(default_factory=list)  # position and phase of labelled instructions

    def level_at(self, position: int) -> int:
        at = bisect.bisect_right(self.positions, position) - 1
        return self.temporary_bytes[at] if at >= 0 else 0

    def peak_by_phase(self) -> dict[str, int]:
        """The most that is in use while instructions of a phase run; they may be mixed with those of others."""
        out: dict[str, int] = {}
        for position, phase in self.phases:
            out[phase] = max(out.get(phase, 0), self.argument_bytes + self.level_at(position))
        return out

    def made_in(self, phase: str) -> int:
        """Bytes of temporary arrays that are in use at the peak and were made in a phase."""
        return sum(b.size for b in self.largest if b.parameter is None and b.label.partition(" ")[0] == phase)

    @property
    def peak_bytes(self) -> int:
        return self.argument_bytes + max(self.temporary_bytes, default=0)


def _merged(temporaries: list[Buffer]) -> list[Buffer]:
    """Values that are in one place at the same time are one buffer, such as what an exchange begins with and ends with."""
    out: list[Buffer] = []
    for b in sorted(temporaries, key=lambda b: (b.place, b.begin)):
        last = out[-1] if out else None
        if last and last.place == b.place and b.begin <= last.end:
            last.end, last.size = max(last.end, b.end), max(last.size, b.size)
        else:
            out.append(b)
    return out


def memory_of(buffers: list[Buffer], ranges: dict[str, tuple[int, int]], length: int) -> Memory:
    """Puts both together. A parameter's memory is in use from beginning to end, whoever writes into it."""
    arguments: dict[int, Buffer] = {}
    change: dict[int, int] = defaultdict(int)
    temporaries = []
    for b in buffers:
        if b.parameter is not None:
            if b.size >= arguments.get(b.parameter, b).size:
                arguments[b.parameter] = b
        elif b.name in ranges:
            b.begin, b.end = ranges[b.name]
            temporaries.append(b)
    temporaries = _merged(temporaries)
    for b in temporaries:
        change[b.begin] += b.size
        change[b.end + 1] -= b.size
    positions, levels, level = [], [], 0
    for at in sorted(change):
        level += change[at]
        positions.append(at)
        levels.append(level)
    peak = positions[max(range(len(levels)), key=levels.__getitem__)] if levels else 0
    alive = [b for b in temporaries if b.begin <= peak <= b.end]
    largest = sorted([*alive, *arguments.values()], key=lambda b: -b.size)
    return Memory(sum(b.size for b in arguments.values()), positions, levels, length, largest)


def sample(memory: Memory, points: int) -> list[tuple[float, int]]:
    """The curve at ``points`` places: for each stretch of the schedule its highest level, with the stretch's end in 0..1."""
    out: list[tuple[float, int]] = []
    if not memory.positions:
        return [(1.0, 0)]
    length = max(memory.length, 1)
    for p in range(points):
        begin, end = length * p / points, length * (p + 1) / points
        first = max(bisect.bisect_right(memory.positions, begin) - 1, 0)
        last = bisect.bisect_left(memory.positions, end)
        before = memory.positions[0] > begin
        levels = memory.temporary_bytes[first : max(last, first + 1)]
        out.append(((p + 1) / points, 0 if before and last == 0 else max(levels, default=0)))
    return out


# ---- a folder of dumps ----------------------------------------------------------------------------------------------


def dump_options(folder: str) -> dict[str, object]:
    """XLA's options that make the compiler write what is read here."""
    return {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}


def _files(folder: pathlib.Path, ending: str) -> Iterator[str]:
    for path in sorted(folder.glob(f"*{ending}")):
        yield path.read_text(errors="replace")


def read_dump(folder: str) -> tuple[str | None, Memory | None]:
    """The optimised program's text and its memory, from a folder that dump_options named; None for what isn't there."""
    root = pathlib.Path(folder)
    text = next(_files(root, ".after_optimizations.txt"), None)
    text = text or next(_files(root, ".after_optimizations_before_buffer_assignment.txt"), None)
    assignment = next(_files(root, ".after_optimizations-buffer-assignment.txt"), None)
    ranges = next(_files(root, ".after_optimizations-live-range.txt"), None)
    memory = memory_of(parse_buffers(assignment), *parse_ranges(ranges)) if assignment and ranges else None
    if text and memory:
        said = labels(parse_module(text))
        for b in memory.largest:
            b.label = said.get(b.name.partition("{")[0], "")
        for position, name in enumerate(parse_sequence(ranges)):
            phase = said.get(name, "").partition(" ")[0]
            if phase in PHASES:
                memory.phases.append((position, phase))
    return text, memory
