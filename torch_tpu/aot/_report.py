"""What compiling a program for a TPU told: as an object, a table, JSON, and (in _html.py) a page."""

import dataclasses
import json
import re
from typing import Any

from torch_tpu.aot import _chips, _hlo
from torch_tpu.aot._compiler import OutOfHbm, ProgramRefused, Topology
from torch_tpu.aot._trace import Input, Traced

_UNITS = (("EiB", 2**60), ("PiB", 2**50), ("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def bytes_text(n: float) -> str:
    for unit, size in _UNITS:
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n:.0f} B"


def count_text(n: float, unit: str = "") -> str:
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(n) >= size:
            return f"{n / size:.2f} {prefix}{unit}"
    return f"{n:.0f} {unit}".rstrip()


def seconds_text(s: float) -> str:
    return f"{s:.2f} s" if s >= 1 else f"{s * 1e3:.2f} ms" if s >= 1e-3 else f"{s * 1e6:.1f} us"


@dataclasses.dataclass
class Roofline:
    """The least time that a step can take for each of three reasons, in seconds, on one device at its peak."""

    compute: float
    memory: float
    network: float
    intensity: float  # flops for each byte of memory traffic
    balance: float  # the chip's own ratio: below it, memory is the limit

    ASSUMPTIONS = (
        "every flop at the chip's bf16 peak",
        "every byte that XLA counts as accessed comes from HBM at its peak bandwidth",
        "every collective as one ring over all of a device's links, at their peak in one direction",
        "host, input pipeline and launch cost nothing",
    )

    @property
    def overlapped(self) -> float:
        """If all three go on at the same time: no real step is faster."""
        return max(self.compute, self.memory, self.network)

    @property
    def serial(self) -> float:
        """If none overlaps with another."""
        return self.compute + self.memory + self.network

    @property
    def limit(self) -> str:
        return max(("compute", "memory", "network"), key=lambda n: getattr(self, n))


def roofline(chip: _chips.Chip, flops: float, accessed: float, sent: float) -> Roofline:
    return Roofline(
        compute=flops / chip.bf16_flops,
        memory=accessed / chip.hbm_bandwidth,
        network=sent / chip.ici_bandwidth,
        intensity=flops / accessed if accessed else 0.0,
        balance=chip.bf16_flops / chip.hbm_bandwidth,
    )


@dataclasses.dataclass
class Report:
    """``verdict``: "fits", "too large" (HBM overflow) or "refused". All sizes are bytes of one device; -1: not told.

    ``stored`` is the file with the compiled program, if one was asked for.
    """

    program: str
    topology: Topology
    sharding: str
    effort: str
    verdict: str
    message: str = ""
    needed_bytes: int = -1
    trace_seconds: float = 0.0
    compile_seconds: float = 0.0
    calls: int = 0
    batch: int = 0
    recompute: bool = False
    told: dict[str, Any] = dataclasses.field(default_factory=dict)
    inputs: list[Input] = dataclasses.field(default_factory=list)
    input_bytes: list[int] = dataclasses.field(default_factory=list)
    collectives: list[_hlo.Collective] = dataclasses.field(default_factory=list)
    memory: _hlo.Memory | None = None
    chip: _chips.Chip | None = None
    hlo: str = ""
    text: str = ""
    stored: str | None = None

    @property
    def fits(self) -> bool:
        return self.verdict == "fits"

    @property
    def peak_bytes(self) -> int:
        """Bytes of HBM that a device has to set aside: what the program takes, its code, and the block in which its temporary
        arrays lie, with the gaps between them. The compiler's own peak is less: it counts what is in use at one time."""
        parts = [self.told.get(f"{name}_bytes", -1) for name in ("argument", "output", "alias", "temp", "code")]
        whole = -1
        if min(parts) >= 0:
            argument, output, alias, temp, code = parts
            whole = int(argument + output - alias + temp + code)
        elif not self.told and self.memory:
            whole = self.memory.peak_bytes
        return max(whole, self.needed_bytes, int(self.told.get("peak_bytes", -1)))

    @property
    def roofline(self) -> Roofline | None:
        if not self.chip or self.told.get("flops", -1) < 0:
            return None
        sent = sum(c.sent for c in self.collectives)
        return roofline(self.chip, self.told["flops"], self.told["bytes_accessed"], sent)

    def by_role(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for i, size in zip(self.inputs, self.input_bytes, strict=True):
            out[i.role] = out.get(i.role, 0) + size
        return out

    def largest(self, count: int = 12) -> list[tuple[str, int, str]]:
        """The largest buffers at the peak: what each is, bytes, shape; the program's inputs by their names."""
        if not self.memory:
            named = zip(self.inputs, self.input_bytes, strict=True)
            return [(i.name, s, str(i.shape)) for i, s in sorted(named, key=lambda p: -p[1])[:count]]
        out = []
        for b in self.memory.largest[:count]:
            known = b.parameter is not None and b.parameter < len(self.inputs)
            name = b.name.partition("{")[0]
            temporary = f"{b.label.replace('aten::', '')} ({name})" if b.label else f"temporary {name}"
            out.append((self.inputs[b.parameter].name if known else temporary, b.size, b.shape))
        return out

    def advice(self) -> list[str]:
        """What to change about a program that doesn't fit, with what each would give, as far as that can be told beforehand."""
        if self.verdict == "fits":
            near = self.effort != "full" and self.peak_bytes > 0.9 * self.topology.memory_bytes > 0
            return ['this is close to the limit: ask again with effort="full", which is what runs on a TPU use'] if near else []
        if self.verdict != "too large" or not self.topology.memory_bytes:
            return []
        ways = (self._advise_fsdp, self._advise_bfloat16, self._advise_recompute, self._advise_batch, self._advise_devices)
        return [text for way in ways if (text := way())]

    @property
    def _kept(self) -> int:
        """Bytes of what is there before and after the program: parameters, the optimizer's state, buffers."""
        roles = self.by_role()
        return roles.get("parameter", 0) + roles.get("optimizer", 0) + roles.get("buffer", 0)

    def _advise_fsdp(self) -> str:
        n = self.topology.devices
        if self.sharding == "fsdp" or n == 1 or not self._kept:
            return ""
        return f'sharding="fsdp" splits parameters and optimizer state over {n} devices: {bytes_text(self._kept)} of each become about {bytes_text(self._kept / n)}'

    def _advise_bfloat16(self) -> str:
        named = zip(self.inputs, self.input_bytes, strict=True)
        wide = sum(size for i, size in named if i.role in ("parameter", "optimizer") and i.dtype == "float32")
        if wide < 0.05 * self.topology.memory_bytes:
            return ""
        return f"parameters and optimizer state in bfloat16 take {bytes_text(wide / 2)} less of each device"

    def _advise_recompute(self) -> str:
        held = self.memory.made_in("forward") if self.memory else 0
        if self.recompute or "train_step" not in self.program or held < 0.05 * self.topology.memory_bytes:
            return ""
        return f"recompute=True keeps only the inputs of repeated layers for backward; arrays of forward are {bytes_text(held)} at the peak"

    def _advise_batch(self) -> str:
        limit, n = self.topology.memory_bytes, self.topology.devices
        if self._kept >= limit:
            return f"parameters and optimizer state alone ({bytes_text(self._kept)}) are more than a device has ({bytes_text(limit)}): no batch fits"
        share = (limit - self._kept) / max(self.peak_bytes - self._kept, 1)
        parts = n if self.sharding != "replicated" else 1
        fits = int(self.batch * share) // parts * parts
        tokens = f"about {100 * share:.0f}% of the tokens of each device would fit, if temporary arrays go with their number"
        if fits:
            return f"a smaller batch: {tokens} ({fits} instead of {self.batch})"
        return f"shorter sequences: {tokens}" + (f", and the batch is {self.batch} already" if self.batch else "")

    def _advise_devices(self) -> str:
        n = self.topology.devices
        whole = self.peak_bytes * (n if self.sharding == "fsdp" else 1)
        wanted = n
        while wanted * self.topology.memory_bytes < whole:
            wanted *= 2
        if wanted == n:
            return ""
        kind = f"{wanted} devices" if self.sharding == "fsdp" else f'{wanted} devices with sharding="fsdp"'
        return f"{kind} or more, the batch being what it is: a share of what is needed now fits into each, but for parameters while they are gathered"

    # ---- forms --------------------------------------------------------------------------------------------------

    def to_json(self, hlo: bool = False) -> str:
        d: dict[str, Any] = {
            "program": self.program,
            "topology": dataclasses.asdict(self.topology),
            "sharding": self.sharding,
            "effort": self.effort,
            "verdict": self.verdict,
            "message": self.message,
            "peak_bytes": self.peak_bytes,
            "trace_seconds": self.trace_seconds,
            "compile_seconds": self.compile_seconds,
            "calls": self.calls,
            "batch": self.batch,
            "recompute": self.recompute,
            "compiler": self.told,
            "bytes_by_role": self.by_role(),
            "peak_by_phase": self.memory.peak_by_phase() if self.memory else {},
            "largest": [{"name": n, "bytes": s, "shape": h} for n, s, h in self.largest(40)],
            "collectives": [dataclasses.asdict(c) for c in self.collectives],
            "advice": self.advice(),
            "inputs": [{**dataclasses.asdict(i), "bytes": s} for i, s in zip(self.inputs, self.input_bytes, strict=True)],
        }
        if self.chip:
            d["chip"] = dataclasses.asdict(self.chip)
        if r := self.roofline:
            d["roofline"] = {
                **dataclasses.asdict(r),
                "overlapped": r.overlapped,
                "serial": r.serial,
                "limit": r.limit,
                "assumptions": Roofline.ASSUMPTIONS,
            }
        if hlo:
            d["hlo"] = self.hlo
        return json.dumps(d, indent=1)

    def rows(self) -> list[tuple[str, str]]:
        """The report's table."""
        t, told = self.topology, self.told
        limit = t.memory_bytes
        words = {"fits": "compiles and fits", "too large": "does NOT fit into HBM", "refused": "is refused by the compiler"}
        rows = [
            ("program", f"{self.program} ({self.calls} operator calls, {len(self.inputs)} inputs)"),
            ("for", f"{t.name}: {t.devices} x {t.kind}, sharding {self.sharding}"),
            ("verdict", words[self.verdict]),
        ]
        if self.message:
            rows.append(("compiler says", " ".join(self.message.split())[:600]))
        if self.peak_bytes >= 0:
            share = f", {100 * self.peak_bytes / limit:.0f}% of {bytes_text(limit)}" if limit else ""
            rows.append(("peak HBM per device", bytes_text(self.peak_bytes) + share))
        if self.memory and self.memory.phases:
            most = self.memory.peak_by_phase()
            rows.append(("peak by phase", ", ".join(f"{p} {bytes_text(most[p])}" for p in _hlo.PHASES if p in most)))
        roles = ", ".join(
            f"{name} {bytes_text(size)}" for name, size in sorted(self.by_role().items(), key=lambda p: -p[1]) if size >= 2**20
        )
        if roles:
            rows.append(("inputs per device", roles))
        if told.get("temp_bytes", -1) >= 0:
            rows.append(("temporaries, program", f"{bytes_text(told['temp_bytes'])}, {bytes_text(told['code_bytes'])} of code"))
        if told.get("flops", -1) >= 0:
            rows.append(
                (
                    "per device and step",
                    f"{count_text(told['flops'], 'flop')}, {bytes_text(told['bytes_accessed'])} of memory traffic",
                )
            )
        for c in self.collectives:
            rows.append((c.kind, f"{c.count} x, {bytes_text(c.bytes)} of arrays, {bytes_text(c.sent)} sent by each device"))
        if r := self.roofline:
            rows.append(("intensity", f"{r.intensity:.0f} flop/byte; the chip's balance is {r.balance:.0f}"))
            parts = ", ".join(f"{name} {seconds_text(getattr(r, name))}" for name in ("compute", "memory", "network"))
            rows.append(
                (
                    "step time, at least",
                    f"{seconds_text(r.overlapped)} (limit: {r.limit}); without any overlap {seconds_text(r.serial)}: {parts}",
                )
            )
            rows.append(("assumed", "; ".join(Roofline.ASSUMPTIONS)))
        rows += [("what to change", a) for a in self.advice()]
        rows.append(
            (
                "took",
                f"{seconds_text(self.trace_seconds)} to capture, {seconds_text(self.compile_seconds)} to compile (effort {self.effort})",
            )
        )
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {value}" for name, value in rows]
        if self.verdict != "refused" and self.largest():
            lines.append("")
            lines.append("largest buffers" + (" at the peak" if self.memory else " among the inputs"))
            lines += [f"  {bytes_text(size):>12}  {name}  {shape}" for name, size, shape in self.largest()]
        return "\n".join(lines)

    def to_html(self) -> str:
        """One self-contained page."""
        from torch_tpu.aot import _html

        return _html.page(self)


_DTYPE_BYTES = {"bool": 1, "complex64": 8, "complex128": 16}


def input_bytes(i: Input) -> int:
    """Bytes of an input on one device."""
    digits = re.search(r"(\d+)", i.dtype)
    size = _DTYPE_BYTES.get(i.dtype) or (max(int(digits.group(1)) // 8, 1) if digits else 1)
    for d in i.shape:
        size *= d
    parts = re.match(r"\{devices=\[([\d,]+)\]", i.sharding)
    for p in parts.group(1).split(",") if parts else ():
        size = -(-size // int(p))
    return size


_SIZE = re.compile(r"([\d.]+)\s*([KMGT])(?:i?B)?\b")


def needed(message: str) -> int:
    """The bytes that a RESOURCE_EXHAUSTED says are needed ("Used 33.1G of 31.25G hbm"); -1: it doesn't say."""
    found = re.search(
        r"Used ([\d.]+[KMGT]) of|requires? ([\d.]+[KMGT])|required[^(]*\(([\d.]+[KMGT])\)|([\d.]+[KMGT])\) exceeds", message
    )
    size = _SIZE.match(next(g for g in found.groups() if g)) if found else None
    return int(float(size.group(1)) * 2 ** {"K": 10, "M": 20, "G": 30, "T": 40}[size.group(2)]) if size else -1


def describe(
    traced: Traced, topology: Topology, sharding: str, effort: str, outcome: dict[str, Any] | Exception, dump: str | None
) -> Report:
    """Puts together what the compiler told, or refused with, and what it wrote into ``dump``."""
    report = Report(traced.name, topology, sharding, effort, "fits", inputs=traced.inputs, calls=traced.calls, text=traced.text)
    report.batch, report.recompute = traced.batch, traced.recompute
    report.input_bytes = [input_bytes(i) for i in traced.inputs]
    chip, chips = _chips.chip_of(topology.name), _chips.chip_count(topology.name)
    if chip:
        report.chip = chip.share(topology.devices / chips if chips else 1)
    if isinstance(outcome, ProgramRefused):
        report.verdict = "too large" if isinstance(outcome, OutOfHbm) else "refused"
        report.message = str(outcome)
        report.needed_bytes = needed(report.message) if report.verdict == "too large" else -1
    else:
        report.told = outcome
        report.compile_seconds = outcome["seconds"]
    if dump:
        text, report.memory = _hlo.read_dump(dump)
        if text:
            report.hlo = text
            report.collectives = _hlo.collectives(_hlo.parse_module(text), topology.devices)
    return report
