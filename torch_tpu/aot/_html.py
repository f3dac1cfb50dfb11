"""A report as one self-contained page: a table and two pictures, drawn as SVG."""

import html
import math
from collections import Counter

from torch_tpu.aot import _hlo
from torch_tpu.aot._report import Report, Roofline, bytes_text, count_text

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 300, 80, 40
_MOST_HLO = 1_000_000  # characters on the page
_COLORS = {"forward": "#5b9b6b", "backward": "#7a5ba8", "optimizer": "#c0627a"}
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1c2430;background:#fff}
h1{font-size:1.5rem} h2{font-size:1.1rem;margin-top:2rem} table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #dde3ea;vertical-align:top}
th{white-space:nowrap;font-weight:600} td.n{text-align:right;white-space:nowrap} code{font-size:.85em}
pre{font-size:.75em;overflow:auto;max-height:40rem} .fits{color:#0a7a3d}.no{color:#b3261e} svg text{font:12px system-ui,sans-serif;fill:#44505e} p.note{color:#5a6675}
"""


def _e(text: object) -> str:
    return html.escape(str(text))


def _frame(body: str, title: str) -> str:
    box = f"0 0 {_WIDTH} {_HEIGHT}"
    return f'<svg viewBox="{box}" width="100%" role="img" aria-label="{_e(title)}"><title>{_e(title)}</title>{body}</svg>'


def _line(x1: float, y1: float, x2: float, y2: float, color: str, extra: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" {extra}/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_e(text)}</text>'


def memory_picture(report: Report) -> str:
    """HBM over the program's schedule: parameters and state below, all else above, and the device's limit."""
    memory = report.memory
    if not memory:
        return ""
    points = _hlo.sample(memory, 160)
    limit = report.topology.memory_bytes
    top = max(memory.peak_bytes, report.peak_bytes, limit) * 1.08 or 1
    x = lambda f: _LEFT + f * (_WIDTH - _LEFT - 10)  # noqa: E731
    y = lambda b: (_HEIGHT - _BOTTOM) * (1 - b / top) + 5  # noqa: E731
    base = y(memory.argument_bytes)
    out = [f'<rect x="{x(0):.1f}" y="{base:.1f}" width="{x(1) - x(0):.1f}" height="{y(0) - base:.1f}" fill="#8fb3d9"/>']
    steps, before = [f"{x(0):.1f},{base:.1f}"], 0.0
    for at, level in points:
        height = y(memory.argument_bytes + level)
        steps += [f"{x(before):.1f},{height:.1f}", f"{x(at):.1f},{height:.1f}"]
        before = at
    steps.append(f"{x(1):.1f},{base:.1f}")
    out.append(f'<polygon points="{" ".join(steps)}" fill="#e0a458"/>')
    if limit:
        out.append(_line(x(0), y(limit), x(1), y(limit), "#b3261e", 'stroke-dasharray="6 4"'))
        out.append(_text(x(1), y(limit) - 5, f"a device has {bytes_text(limit)}", "end"))
    if report.peak_bytes > 0:
        out.append(_line(x(0), y(report.peak_bytes), x(1), y(report.peak_bytes), "#44505e", 'stroke-dasharray="2 3"'))
        out.append(_text(x(0) + 8, y(report.peak_bytes) - 4, f"set aside: {bytes_text(report.peak_bytes)}"))
    for k in range(5):
        level = top * k / 4
        out.append(_text(_LEFT - 8, y(level) + 4, bytes_text(level), "end"))
    # A strip that shows which phase's instructions run: whose there are most of in each stretch.
    stretches: list[Counter] = [Counter() for _ in points]
    for position, phase in memory.phases:
        stretches[min(len(points) - 1, position * len(points) // max(memory.length, 1))][phase] += 1
    for k, stretch in enumerate(stretches):
        if stretch:
            color = _COLORS[stretch.most_common(1)[0][0]]
            out.append(
                f'<rect x="{x(k / len(points)):.1f}" y="{y(0) + 2:.1f}" width="{(x(1) - x(0)) / len(points) + 0.3:.1f}" height="8" fill="{color}"/>'
            )
    for k, phase in enumerate(p for p in _hlo.PHASES if any(p in s for s in stretches)):
        out.append(f'<rect x="{x(0.25) + 110 * k:.1f}" y="{_HEIGHT - 22}" width="10" height="10" fill="{_COLORS[phase]}"/>')
        out.append(_text(x(0.25) + 110 * k + 15, _HEIGHT - 12, phase))
    out.append(_line(x(0), y(0), x(1), y(0), "#44505e"))
    out.append(_text(x(0), _HEIGHT - 12, "the step's begin"))
    out.append(_text(x(1), _HEIGHT - 12, "end, in the compiler's order", "end"))
    out.append(_text(x(0) + 8, base + 16, f"parameters, state, inputs: {bytes_text(memory.argument_bytes)}"))
    return _frame("".join(out), "HBM in use over the step")


def roofline_picture(report: Report) -> str:
    """Attainable flops per second by intensity, on logarithmic axes, with this program's place."""
    r, chip = report.roofline, report.chip
    if not r or not chip or r.intensity <= 0:
        return ""
    low, high = min(r.intensity, r.balance) / 16, max(r.intensity, r.balance) * 8
    floor, roof = chip.hbm_bandwidth * low, chip.bf16_flops * 2
    x = lambda v: _LEFT + (math.log(v) - math.log(low)) / (math.log(high) - math.log(low)) * (_WIDTH - _LEFT - 20)  # noqa: E731
    y = lambda v: (_HEIGHT - _BOTTOM) * (1 - (math.log(v) - math.log(floor)) / (math.log(roof) - math.log(floor))) + 5  # noqa: E731
    out = [_line(x(low), y(floor), x(r.balance), y(chip.bf16_flops), "#3366a0", 'stroke-width="2"')]
    out.append(_line(x(r.balance), y(chip.bf16_flops), x(high), y(chip.bf16_flops), "#3366a0", 'stroke-width="2"'))
    attained = min(chip.bf16_flops, chip.hbm_bandwidth * r.intensity)
    out.append(_line(x(r.intensity), y(floor), x(r.intensity), y(attained), "#e0a458", 'stroke-dasharray="5 4"'))
    out.append(f'<circle cx="{x(r.intensity):.1f}" cy="{y(attained):.1f}" r="6" fill="#b3261e"/>')
    out.append(_text(x(r.intensity) + 9, y(attained) + 16, f"this program: {r.intensity:.0f} flop/byte"))
    out.append(_text(x(high), y(chip.bf16_flops) - 6, f"{count_text(chip.bf16_flops, 'flop/s')} (bf16)", "end"))
    out.append(_text(x(low) + 6, y(floor) - 8, f"HBM: {count_text(chip.hbm_bandwidth, 'B/s')}"))
    out.append(_line(x(low), y(floor), x(high), y(floor), "#44505e"))
    out.append(_text(x(low), _HEIGHT - 12, f"{low:.2g} flop/byte"))
    out.append(_text(x(high), _HEIGHT - 12, f"{high:.2g}", "end"))
    return _frame("".join(out), "Roofline")


def _phases(report: Report) -> str:
    most = report.memory.peak_by_phase() if report.memory else {}
    limit = report.topology.memory_bytes
    share = lambda n: f"{100 * n / limit:.0f}%" if limit else ""  # noqa: E731
    rows = [(p, bytes_text(most[p]), share(most[p])) for p in _hlo.PHASES if p in most]
    return _table(rows, ("while this runs", "most in use", "of the device")) if rows else ""


def _collectives(report: Report) -> str:
    rows = [(c.kind, f"{c.count}", bytes_text(c.bytes), bytes_text(c.sent)) for c in report.collectives]
    return _table(rows, ("exchange", "times", "whole arrays", "sent by each device")) if rows else ""


def _program(report: Report) -> str:
    """The optimised program, folded away; its beginning if it is long."""
    if not report.hlo:
        return ""
    shown = report.hlo[:_MOST_HLO]
    rest = len(report.hlo) - len(shown)
    cut = f"\n... and {rest} more characters: Report.hlo, or --hlo FILE, has all of it" if rest else ""
    lines = report.hlo.count("\n")
    return f"<details><summary>{lines} lines of HLO, after the compiler's passes</summary><pre>{_e(shown)}{_e(cut)}</pre></details>"


def _table(rows: list[tuple[str, ...]], heads: tuple[str, ...] = ()) -> str:
    head = "<tr>" + "".join(f"<th>{_e(h)}</th>" for h in heads) + "</tr>" if heads else ""
    lines = []
    for row in rows:
        first, *rest = row
        lines.append(f"<tr><th>{_e(first)}</th>" + "".join(f"<td>{_e(c)}</td>" for c in rest) + "</tr>")
    return f"<table>{head}{''.join(lines)}</table>"


def page(report: Report) -> str:
    title = f"{report.program} on {report.topology.name}"
    state = "fits" if report.fits else "no"
    parts = [
        f"<h1>{_e(title)}</h1>",
        f'<p class="{state}"><b>{_e(dict(report.rows())["verdict"])}</b></p>',
        _table(report.rows()),
    ]
    if picture := memory_picture(report):
        parts += ["<h2>Memory over the step</h2>", picture]
        parts.append(
            '<p class="note">Blue: what the step takes and gives back in place. Orange: temporary arrays in use, at their most in each stretch. '
            "Set aside: all that the device must have for it, with code and the gaps between temporary arrays.</p>"
        )
        parts.append(_phases(report))
    if report.largest():
        rows = [(name, bytes_text(size), shape) for name, size, shape in report.largest(24)]
        parts += ["<h2>Largest buffers</h2>", _table(rows, ("buffer", "on each device", "shape"))]
    if picture := roofline_picture(report):
        notes = "; ".join(Roofline.ASSUMPTIONS)
        parts += [
            "<h2>Roofline</h2>",
            picture,
            f'<p class="note">Assumed: {_e(notes)}. Numbers of the chip: <a href="{_e(report.chip.source)}">{_e(report.chip.source)}</a>.</p>',
        ]
    if exchanges := _collectives(report):
        parts += ["<h2>Exchanges between devices</h2>", exchanges]
        parts.append('<p class="note">What is sent is counted for one ring of all devices that take part.</p>')
    if program := _program(report):
        parts += ["<h2>Optimised program</h2>", program]
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_e(title)}</title><style>{_STYLE}</style><body>{"".join(parts)}</body></html>\n'
