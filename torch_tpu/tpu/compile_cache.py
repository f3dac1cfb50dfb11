"""What the compile cache did in this process. ``docs/cache.md`` tells how to use it."""

from typing import NamedTuple

from torch_tpu import _C

__all__ = ["CacheTier", "CompileCacheStats", "CompiledProgram", "compile_cache_stats"]


class CacheTier(NamedTuple):
    """Counts of one tier outside of the process."""

    root: str
    """The folder."""
    hits: int
    """Programs loaded from here."""
    misses: int
    """Programs that were not here."""
    stores: int
    """Programs written."""
    store_failures: int
    """Programs and notes that could not be written."""
    notes_read: int
    """Calls whose checks by PyTorch's meta kernels were remembered."""
    notes_written: int
    waits: int
    """Programs that another process was compiling."""
    dropped: int
    """Entries that were damaged, foreign or refused by the plugin: removed, and compiled anew."""
    evicted: int
    """Entries removed to keep the size bound."""
    bytes_read: int
    bytes_written: int
    load_seconds: float
    """Reading, checking and loading."""
    store_seconds: float
    wait_seconds: float


class CompiledProgram(NamedTuple):
    name: str
    """The operator that it was first compiled for."""
    key: str
    source: str
    """"compiled", "tier 2" or "tier 3"."""
    compile_seconds: float
    """What its compilation took, whoever did it."""
    load_seconds: float
    """The last load; 0 if it was compiled here."""
    size: int
    """Bytes of its entry; 0 if it has none."""
    reads: int
    """How often this process loaded it."""
    last_read: float | None
    """When, in seconds since 1970."""


class CompileCacheStats(NamedTuple):
    requests: int
    """Operators dispatched."""
    hits: int
    """Of these, how many found their program in the process (tier 1)."""
    compilations: int
    """Programs that this process compiled itself."""
    loaded: int
    """Programs that the process holds now."""
    unloaded: int
    """Programs that made room for others (``TORCH_TPU_MAX_PROGRAMS``)."""
    compile_seconds: float
    tier2: CacheTier | None
    """In the host's memory; None: off."""
    tier3: CacheTier | None
    """In a folder or remote store; None: off."""
    programs: list[CompiledProgram]
    """Every program of this process, in order of first use."""


def _tier(number: int) -> CacheTier | None:
    counts = _C._cache_tier(number)
    if counts is None:
        return None
    seconds = {name[:-3] + "_seconds": n * 1e-9 for name, n in counts.items() if name.endswith("_ns")}
    return CacheTier(**{name: n for name, n in counts.items() if not name.endswith("_ns")}, **seconds)


def _program(row: tuple) -> CompiledProgram:
    name, key, tier, compile_ns, load_ns, size, reads, last_read_ns = row
    source = "compiled" if tier == 1 else f"tier {tier}"
    return CompiledProgram(
        name, key, source, compile_ns * 1e-9, load_ns * 1e-9, size, reads, last_read_ns * 1e-9 if reads else None
    )


def compile_cache_stats() -> CompileCacheStats:
    """The compile cache of this process, tier by tier and program by program. Does not load the plugin."""
    stats = _C._cache_stats()
    return CompileCacheStats(
        stats["requests"],
        stats["hits"],
        stats["compilations"],
        stats["loaded"],
        stats["unloaded"],
        stats["compile_seconds"],
        _tier(2),
        _tier(3),
        [_program(row) for row in _C._cache_programs()],
    )


class _EntryStats(NamedTuple):
    compilation_duration: float
    last_read: float | None
    read_count: int


class _PerfStats(NamedTuple):
    num_cache_reqs: int
    num_cache_hits: int
    num_compilations: int
    peak_compilation_host_memory_bytes: int
    per_entry_stats: dict[str, _EntryStats]


def _get_cache_stats() -> _PerfStats:
    """The same as peers of this package give it; entries by name and key."""
    stats = _C._cache_stats()
    entries = {
        f"{p.name}-{p.key}": _EntryStats(p.compile_seconds, p.last_read, p.reads)
        for p in map(_program, _C._cache_programs())
    }
    return _PerfStats(stats["requests"], stats["hits"], stats["compilations"], stats["peak_host_bytes"], entries)
