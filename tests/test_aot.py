"""Compiling for a TPU that isn't there: the text, the shardings and the report on any machine; the compiler where libtpu is
installed."""

import html
import importlib.util
import json
import pathlib
import re

import pytest
import torch
from conftest import python_output, run_python

from torch_tpu import aot
from torch_tpu.aot import _chips, _experts, _hlo, _report, _sharding, _trace

ROOT = pathlib.Path(__file__).parent.parent
has_libtpu = importlib.util.find_spec("libtpu") is not None
needs_libtpu = pytest.mark.skipif(not has_libtpu, reason="libtpu is not installed: pip install libtpu")

# ---- shardings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape, devices, expected",
    [
        ((4, 16), 8, "{devices=[1,8]<=[8]}"),
        ((32, 16), 8, "{devices=[8,1]<=[8]}"),
        ((33, 16), 8, "{devices=[1,8]<=[8]}"),  # the largest that divides
        ((3, 5), 8, "{replicated}"),
        ((), 8, "{replicated}"),
        ((64,), 1, "{replicated}"),
        ((0, 8), 8, "{devices=[1,8]<=[8]}"),
    ],
)
def test_the_largest_dimension_that_divides_is_split(shape, devices, expected):
    assert _sharding.largest_split(shape, devices) == expected


def test_what_is_split_depends_on_mode_and_role():
    chosen = {
        (mode, kind): _sharding.choose(kind, (16, 32), mode, 4, "x")
        for mode in _sharding.MODES
        for kind in ("batch", "state", "other")
    }
    split = {k for k, v in chosen.items() if v != "{replicated}"}
    assert split == {("data", "batch"), ("fsdp", "batch"), ("fsdp", "state")}
    assert chosen["data", "batch"] == "{devices=[4,1]<=[4]}" and chosen["fsdp", "state"] == "{devices=[1,4]<=[4]}"


def test_a_batch_that_does_not_divide_is_told():
    with pytest.raises(ValueError, match="the batch of 'ids', 6, does not divide by the 4 devices"):
        _sharding.choose("batch", (6, 2), "data", 4, "ids")
    with pytest.raises(ValueError, match="sharding is one of"):
        _sharding.choose("batch", (6, 2), "tensor", 4, "ids")


PROGRAM = """module @m {
func.func public @main(%0: tensor<8x4xf32> {tf.aliasing_output = 1 : i32}, %arg1: tensor<complex<f32>>, %2: tensor<2xbf16> {a = "x, {\\"y\\" -> (z)"}) -> (tensor<8xi1>, tensor<8x4xf32> {jax.result_info = "r"}) {
  "func.return"(%3, %0) : (tensor<8xi1>, tensor<8x4xf32>) -> ()
}
}
"""


def test_a_signature_is_read_and_written():
    s = _sharding.signature(PROGRAM)
    assert [p.name for p in s.parameters] == ["%0", "%arg1", "%2"]
    assert [p.shape for p in s.parameters] == [(8, 4), (), (2,)]
    assert [p.element for p in s.parameters] == ["f32", "complex<f32>", "bf16"]
    assert [p.alias for p in s.parameters] == [1, None, None]
    assert [r.type for r in s.results] == ["tensor<8xi1>", "tensor<8x4xf32>"]
    assert PROGRAM[: s.begin] + s.text() + PROGRAM[s.end :] == PROGRAM


def test_annotations_reach_parameters_and_the_results_that_take_their_memory():
    text = _sharding.annotate(PROGRAM, lambda i, _: f"{{p{i}}}", lambda i, _: "{r}")
    s = _sharding.signature(text)
    assert [_sharding.sharding_of(p) for p in s.parameters] == ["{p0}", "{p1}", "{p2}"]
    assert [_sharding.sharding_of(r) for r in s.results] == ["{r}", "{p0}"]
    assert s.parameters[0].alias == 1 and '\\"y\\"' in s.parameters[2].attributes


def test_programs_without_a_signature_are_refused():
    lone = "func.func @main(%x: tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>> { return %x : tensor<2xcomplex<f32>> }"
    assert _sharding.signature(lone).results[0].type == "tensor<2xcomplex<f32>>"
    assert _sharding.signature("func.func @main() { return }").results == []
    for broken in ("module {}", "func.func @main(%x: tensor<2xf32>"):
        with pytest.raises(ValueError):
            _sharding.signature(broken)


# ---- what the compiler writes ---------------------------------------------------------------------------------------

HLO = """HloModule m, is_scheduled=true

%all-reduce-scatter.1 (input: f32[64]) -> f32[8] {
  %input = f32[64]{0:T(128)} parameter(0)
  %all-reduce.1 = f32[64]{0:T(128)} all-reduce(%input), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
  ROOT %slice = f32[8]{0:T(128)} dynamic-slice(%all-reduce.1), dynamic_slice_sizes={8}
}

%body (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %collective-permute = f32[8]{0} collective-permute(%p), source_target_pairs={{0,1},{1,0}}
}

%async (o: bf16[16]) -> bf16[128] {
  %o = bf16[16]{0} parameter(0)
  ROOT %c = bf16[128]{0} custom-call(%o), custom_call_target="offloaded", called_computations={%inside}
}, execution_thread="sparsecore"

%inside (q: bf16[16]) -> bf16[128] {
  %q = bf16[16]{0} parameter(0)
  ROOT %all-gather.2 = bf16[128]{0} all-gather(%q), replica_groups=mesh['axis_0'=8] {'axis_0'}, dimensions={0}
}

ENTRY %main (a: f32[64]) -> f32[8] {
  %a = f32[64]{0:T(128)} parameter(0)
  %f = f32[8]{0:T(128)} fusion(%a), kind=kCustom, calls=%all-reduce-scatter.1
  %w = f32[8]{0} while(%f), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %s = ((bf16[16]{0}), bf16[128]{0}, u32[]) async-start(%f), calls=%async
  %u = ((bf16[16]{0}), bf16[128]{0}, u32[]) async-update(%s), calls=%async
  %t = (f32[8]{0}, f32[4]{0}) all-reduce(%w, %w), replica_groups=[4,2]<=[8], to_apply=%add
  %g = (f32[4]{0}, f32[32]{0}) all-gather-start(%w), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  %d = f32[32]{0} all-gather-done(%g)
  ROOT %r = f32[8]{0:T(128)} add(%w, %w)
}
"""


def test_collectives_are_counted_with_their_bytes():
    found = {c.kind: c for c in _hlo.collectives(_hlo.parse_module(HLO), 8)}
    assert {k: (c.count, c.bytes) for k, c in found.items()} == {
        "reduce-scatter": (1, 256),  # a fusion of an all-reduce and a slice
        "collective-permute": (5, 160),  # in a loop
        "all-gather": (2, 256 + 128),  # in another computation, and begun alone
        "all-reduce": (1, 48),
    }
    assert found["reduce-scatter"].sent == 256 * 7 / 8
    assert found["all-reduce"].sent == 48  # 2 devices: 2 * 1/2
    assert found["collective-permute"].sent == 160
    assert found["all-gather"].sent == (256 + 128) * 7 / 8


def test_instructions_know_what_they_come_from():
    text = HLO.replace("add(%w, %w)", 'add(%w, %w), metadata={op_name="backward layers.1 aten::add.Tensor" source_line=8}')
    assert _hlo.labels(_hlo.parse_module(text)) == {"r": "backward layers.1 aten::add.Tensor"}


def test_bytes_of_shapes():
    assert _hlo.array_bytes("(bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, u32[], pred[3]{0}, s4[4], f8e4m3fn[10])") == [
        2048,
        4,
        3,
        2,
        10,
    ]
    assert _hlo.array_bytes("token[]") == [0]


BUFFERS = """BufferAssignment:
allocation 0: size 100, page 0, parameter 1, shape |f32[25]| at ShapeIndex {}, maybe-live-out:
 value: <1 param.1 @0> (size=100,offset=0): f32[25]{0}
 value: <2 out{0} @0> (size=100,offset=0): f32[25]{0}
allocation 1: size 900, page 0, preallocated-temp:
 value: <3 early @0> (size=600,offset=0): f32[150]{0}
 value: <4 late{1} @0> (size=700,offset=0): f32[175]{0}
 value: <5 both @0> (size=200,offset=700): f32[50]{0}
 value: <7 again @0> (size=700,offset=0): f32[175]{0}
allocation 2: size 4096, color 1, page 0, preallocated-temp:
 value: <6 fast @0> (size=4096,offset=0): f32[1024]{0:S(1)}
"""
RANGES = """HloLiveRange (max 30):
  InstructionSequence:
    0:early
  BufferLiveRange:
    param.1{}:0-30
    early{}:0-9
    late{1}:10-20
    both{}:5-30
    again{}:15-22
    fast{}:0-30
  Live ranges at 12 (peak):
    late{1}: 700 bytes (cumulative: 700 bytes)
"""


def test_memory_over_the_schedule():
    memory = _hlo.memory_of(_hlo.parse_buffers(BUFFERS), *_hlo.parse_ranges(RANGES))
    assert memory.argument_bytes == 100 and memory.length == 30
    assert dict(zip(memory.positions, memory.temporary_bytes, strict=True)) == {0: 600, 5: 800, 10: 900, 23: 200, 31: 0}  # late and again are one
    assert memory.peak_bytes == 1000
    assert [(b.name, b.size) for b in memory.largest] == [("late{1}", 700), ("both{}", 200), ("out{0}", 100)]
    memory.phases = [(2, "forward"), (12, "backward"), (25, "optimizer")]
    assert memory.peak_by_phase() == {"forward": 700, "backward": 1000, "optimizer": 300}
    assert _hlo.parse_sequence(RANGES) == ["early"]
    curve = _hlo.sample(memory, 6)
    assert [round(at, 2) for at, _ in curve] == [0.17, 0.33, 0.5, 0.67, 0.83, 1.0]
    assert [level for _, level in curve] == [600, 800, 900, 900, 900, 200]
    assert _hlo.sample(_hlo.Memory(5, [], [], 0, []), 4) == [(1.0, 0)]


# ---- the report -----------------------------------------------------------------------------------------------------


def a_report(outcome, sharding="fsdp") -> aot.Report:
    inputs = [
        _trace.Input("w", "parameter", (1024, 1024), "float32", "{devices=[8,1]<=[8]}"),
        _trace.Input("exp_avg of w", "optimizer", (1024, 1024), "bfloat16", "{devices=[8,1]<=[8]}"),
        _trace.Input("<ids>", "batch", (8, 16), "int64", "{devices=[8,1]<=[8]}"),
    ]
    traced = _trace.Traced("Net train_step", "module {}", inputs, 7)
    topology = aot.Topology("v6e:2x4", 8, "TPU v6 lite", "", 2**35, 117)
    return _report.describe(traced, topology, sharding, "fast", outcome, None)


TOLD = {"seconds": 2.0, "outputs": 1, "flops": 918e12, "bytes_accessed": 1638e9 / 2, "code_bytes": 10, "argument_bytes": 20,
        "output_bytes": 20, "alias_bytes": 20, "temp_bytes": 2**30, "peak_bytes": 2**33, "fingerprint": "ab"}  # fmt: skip


def test_sizes_are_those_of_one_device():
    r = a_report(TOLD)
    assert r.input_bytes == [1024 * 1024 * 4 // 8, 1024 * 1024 * 2 // 8, 128]
    assert r.by_role() == {"parameter": 2**19, "optimizer": 2**18, "batch": 128}
    assert _report.input_bytes(_trace.Input("x", "other", (3, 5), "bool", "{devices=[2,1]<=[2]}")) == 8


def test_the_roofline_is_what_the_chip_can_do():
    r = a_report(TOLD)
    r.collectives = [_hlo.Collective("all-gather", 3, 10, 400e9 * 2)]
    line = r.roofline
    assert (line.compute, line.memory, line.network) == (1.0, 0.5, 2.0)
    assert line.limit == "network" and line.overlapped == 2.0 and line.serial == 3.5
    assert line.intensity == pytest.approx(918e12 / 819e9)
    assert "limit: network" in str(r) and "3.50 s" in str(r)


def test_every_chip_has_all_its_numbers_and_where_they_are_from():
    for chip in aot.CHIPS.values():
        assert 16e9 <= chip.hbm_bytes < 3e11 and 5e11 < chip.hbm_bandwidth < 1e13
        assert 1e14 < chip.bf16_flops < 3e15 and 1e11 <= chip.ici_bandwidth < 1e12
        assert chip.source.startswith("https://")
    assert _chips.chip_of("v5e:2x2").name == "v5e" and _chips.chip_of("v99:1") is None
    assert _chips.chip_count("v5p:2x2x4") == 16 and _chips.chip_count("v6e") is None
    assert a_report(TOLD).chip == aot.CHIPS["v6e"]
    half = aot.CHIPS["tpu7x"].share(2)
    assert half.bf16_flops * 2 == aot.CHIPS["tpu7x"].bf16_flops and half.hbm_bytes == 96 * 2**30


def test_what_a_device_sets_aside():
    assert a_report({**TOLD, "peak_bytes": 5}).peak_bytes == 20 + 20 - 20 + 2**30 + 10  # the block with its gaps, and code
    assert a_report({**TOLD, "temp_bytes": -1}).peak_bytes == 2**33  # all that is told
    r = a_report({**TOLD, "peak_bytes": 31 * 2**30})
    assert r.fits and any('effort="full"' in a for a in r.advice()) and "what to change" in str(r)
    assert not a_report(TOLD).advice()


def test_a_program_that_does_not_fit_gets_advice():
    error = aot.OutOfHbm(
        "compilation failed: E1000: Ran out of memory in memory space hbm. Used 40.50G of 31.25G hbm.", "out of memory"
    )
    r = a_report(error, sharding="data")
    assert r.verdict == "too large" and not r.fits and r.roofline is None
    assert r.peak_bytes == int(40.5 * 2**30)
    text = str(r)
    assert "does NOT fit" in text and "w  (1024, 1024)" in text
    assert 'sharding="fsdp" splits' in text and "768.00 KiB of each become about 96.00 KiB" in text
    assert "shorter sequences: about 79% of the tokens" in text and "devices or more" not in text
    r.batch = 64
    assert any(a.startswith("a smaller batch: about 79%") and "(48 instead of 64)" in a for a in r.advice())  # 50, in eights
    r.memory = _hlo.Memory(0, [0], [2**34], 1, [_hlo.Buffer("a", 2**34, "", None, label="forward layers.0 aten::mm")])
    assert any("recompute=True" in a and "16.00 GiB" in a for a in r.advice())
    r.recompute = True
    assert not any("recompute=True" in a for a in r.advice())
    r.topology = aot.Topology("v6e:2x4", 8, "", "", 2**18, 117)
    assert any("parameters and optimizer state alone" in a and "no batch fits" in a for a in r.advice())
    assert any("in bfloat16 take 256.00 KiB less" in a for a in r.advice())
    assert json.loads(r.to_json())["advice"] == r.advice() and "what to change" in r.to_html()
    assert a_report(aot.ProgramRefused("no such thing", "not implemented")).verdict == "refused"
    one = a_report(error)  # fsdp already
    assert not any("splits" in a for a in one.advice()) and any(a.startswith("16 devices or more") for a in one.advice())


def test_sizes_in_the_compilers_words():
    assert _report.needed("the total memory required for HLO temporaries (64.00G) exceeds available HBM (15.75G)") == 64 * 2**30
    assert _report.needed("Used 1.5M of 1M hbm") == 3 * 2**19
    assert _report.needed("something else") == -1


def test_json_and_page_hold_what_the_table_says():
    r = a_report(TOLD)
    r.memory = _hlo.memory_of(_hlo.parse_buffers(BUFFERS), *_hlo.parse_ranges(RANGES))
    r.hlo = HLO
    r.memory.phases = [(0, "forward"), (20, "optimizer")]
    d = json.loads(r.to_json(hlo=True))
    assert d["verdict"] == "fits" and d["peak_bytes"] == 2**33 and d["roofline"]["limit"] == "compute" and d["hlo"] == HLO
    assert d["largest"][2] == {"name": "exp_avg of w", "bytes": 100, "shape": "f32[25]{0}"}
    assert [i["bytes"] for i in d["inputs"]] == r.input_bytes and d["chip"]["source"].startswith("https")
    r.collectives = _hlo.collectives(_hlo.parse_module(HLO), 8)
    page = r.to_html()
    for shown in ("set aside: 8.00 GiB", "most in use", "reduce-scatter", "%all-reduce-scatter.1 (input", "flop/byte", *_report.Roofline.ASSUMPTIONS):
        assert html.escape(shown) in page, shown
    assert all(a in str(r) for a in _report.Roofline.ASSUMPTIONS)
    assert page.count("<svg") == 2 and "HBM in use over the step" in page and "Roofline" in page
    assert "src=" not in page and "<script" not in page and "<link" not in page  # self-contained
    import xml.etree.ElementTree as xml

    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        numbers = [float(n) for e in xml.fromstring(svg).iter() for a in ("x", "y", "x1", "y1", "x2", "y2") if (n := e.get(a))]
        assert numbers and all(-1 <= n <= 800 for n in numbers)
    r.program = "<b>&"
    assert "<b>&" not in r.to_html()


# ---- from a model to a text (in processes of their own: the device becomes an abstract one) -------------------------------

MODEL = """
import torch
from torch_tpu import aot
from torch_tpu.aot import _sharding
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(32, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 8)
    def forward(self, x, y):
        return torch.nn.functional.cross_entropy(self.last(self.norm(self.first(x)).relu()), y)
with torch.device("meta"):
    net, x, y = Net(), torch.empty(16, 32), torch.empty(16, dtype=torch.int64)
def inputs(t): return {i.name: i for i in t.inputs}
"""


def test_a_training_step_is_one_program_that_updates_in_place():
    python_output(
        MODEL
        + """
t = aot.trace(net, (x, y), mode="train_step", devices=4, sharding="fsdp")
s = _sharding.signature(t.text)
known = inputs(t)
assert {i.role for i in t.inputs} == {"parameter", "optimizer", "buffer", "batch", "number"}, known
assert known["first.weight"].sharding == "{devices=[4,1]<=[4]}" and known["last.weight"].sharding == "{devices=[1,4]<=[4]}"
assert known["exp_avg of first.weight"].sharding == known["first.weight"].sharding
assert known["x"].sharding == "{devices=[4,1]<=[4]}" and known["norm.running_mean"].sharding == "{replicated}"
for p, i in zip(s.parameters, t.inputs):
    assert _sharding.sharding_of(p) == i.sharding and p.shape == i.shape
    updated = i.role in ("parameter", "optimizer") or i.name in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
    assert (p.alias is not None) == updated, i
    if p.alias is not None: assert s.results[p.alias].type == p.type and _sharding.sharding_of(s.results[p.alias]) == i.sharding
new = [r for k, r in enumerate(s.results) if k not in {p.alias for p in s.parameters}]
assert [r.type for r in new] == ["tensor<f32>", "tensor<3xi64>"], new   # the loss, and whether a label was out of range
assert {_sharding.sharding_of(r) for r in new} == {"{replicated}"}
assert t.text.count('call_target_name = "Sharding"') >= 3
assert "ffi" not in t.text and "tt_" not in t.text    # the TPU's form
""",
    )


def test_forward_splits_what_has_the_batch():
    python_output(
        MODEL
        + """
t = aot.trace(lambda a, b, c: (a @ b + c.sum(), c * 2), (x, torch.empty(32, 5, device="meta"), torch.empty(3, device="meta")), devices=8, sharding="data")
s = _sharding.signature(t.text)
assert {i.name: i.sharding for i in t.inputs if i.role != "number"} == {"a": "{devices=[8,1]<=[8]}", "b": "{replicated}", "c": "{replicated}"}
assert {(r.type, _sharding.sharding_of(r)) for r in s.results} == {("tensor<16x5xf32>", "{devices=[8,1]<=[8]}"), ("tensor<3xf32>", "{replicated}")}
one = aot.trace(net.first, (x,))
assert "sharding" not in one.text and sorted(i.name for i in one.inputs) == ["bias", "input", "weight"]
assert net.first.weight.is_meta and type(net.first.weight) is torch.nn.Parameter   # the model is as it was
""",
    )


def test_recomputing_keeps_less_and_computes_more():
    python_output(
        """
import torch
from torch_tpu import aot
class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 16)) for _ in range(3))
    def forward(self, x):
        for l in self.layers: x = x + l(x)
        return x.square().mean()
with torch.device("meta"): net, x = Deep(), torch.empty(8, 16)
plain = aot.trace(net, (x,), mode="train_step", devices=2, sharding="fsdp")
again = aot.trace(net, (x,), mode="train_step", devices=2, sharding="fsdp", recompute=True)
assert again.calls > plain.calls and again.text.count("optimization_barrier") > 0
assert {i.name for i in again.inputs} == {i.name for i in plain.inputs}
assert net.layers[0].forward.__func__ is torch.nn.Sequential.forward
""",
    )


def test_what_cannot_be_captured_says_why():
    python_output(
        MODEL
        + """
def refused(kind, text, call):
    try: call()
    except kind as e: assert text in str(e), e
    else: raise AssertionError(text)
refused(NotImplementedError, "contents of a tensor", lambda: aot.trace(lambda a: a if a.sum() > 0 else -a, (x,)))
refused(ValueError, "needs a loss", lambda: aot.trace(net.first, (x,), mode="train_step"))
refused(ValueError, "does not divide", lambda: aot.trace(net, (x, y), mode="train_step", devices=3, sharding="data"))
refused(ValueError, "mode is one of", lambda: aot.trace(net, (x, y), mode="backward"))
refused(TypeError, "do not fit Net", lambda: aot.trace(net, (x,)))
refused(TypeError, "needs a torch.nn.Module", lambda: aot.trace(lambda a: a.sum(), (x,), mode="train_step"))
refused(RuntimeError, "abstract", lambda: torch.ones(3, device="tpu").exp())
refused(RuntimeError, "abstract", lambda: torch.randn(3).to("tpu").cpu())
assert aot.trace(net, (x, y)).calls  # and a capture after all that
""",
    )
    done = run_python(
        "import torch\nfrom torch_tpu import aot\ntorch.ones(2, device='tpu') + 1\naot.trace(torch.sin, (torch.ones(2),))"
    )
    assert done.returncode and "takes a process of its own" in done.stderr


def test_the_program_computes_what_the_model_does():
    """The text of a training step on the CPU plugin, by hand: its StableHLO is the same program in another process."""
    text = python_output(
        """
import torch
from torch_tpu import aot
torch.manual_seed(0)
net = torch.nn.Linear(4, 3)
print(aot.trace(lambda x: net.weight.new_ones(()) * torch.tanh(x) * 2, (torch.empty(5),)).text)
"""
    )
    assert "stablehlo.tanh" in text and re.search(r"@main\(%\w+: tensor<5xf32>", text)


def test_experts_in_groups_are_the_loop_over_experts():
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen3MoeConfig(
        hidden_size=16, moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2, num_hidden_layers=1, vocab_size=32
    )
    module = pytest.importorskip("transformers.models.qwen3_moe.modeling_qwen3_moe")
    experts = module.Qwen3MoeExperts(config)
    for p in experts.parameters():
        torch.nn.init.normal_(p)
    x, weights = torch.randn(12, 16), torch.rand(12, 2)
    index = torch.tensor([[t % 4, (t + 1 + t // 4 % 3) % 4] for t in range(12)])  # each expert has its share
    config._experts_implementation = "eager"
    expected = experts(x, index, weights)
    torch.testing.assert_close(_experts.forward(experts, x, index, weights), expected)
    # Where there is no room, a token goes without that expert.
    send, back = _experts.routing(torch.zeros(1, 5, 1, dtype=torch.int64), torch.ones(1, 5, 1), 4, 3)
    assert send.sum() == 3 and send[0, :3].sum() == 3 and torch.equal(send, back)


# ---- libtpu ---------------------------------------------------------------------------------------------------------


@needs_libtpu
def test_a_training_step_compiles_for_a_tpu():
    out = python_output(
        MODEL
        + """
import json
for mode in ("replicated", "data", "fsdp"):
    r = aot.compile(net, (x, y), topology="v6e:2x2", mode="train_step", sharding=mode)
    assert r.fits, r
    assert r.peak_bytes > 0 and r.told["flops"] > 0 and r.hlo.startswith("HloModule") and r.memory, mode
    kinds = {c.kind for c in r.collectives}
    print(mode, sorted(kinds))
    assert bool(kinds) == (mode != "replicated"), (mode, kinds)
    names = {n for n, _, _ in r.largest(40)}
    assert set(r.memory.peak_by_phase()) == {"forward", "backward", "optimizer"}, r.memory.phases
    assert any(n.startswith(("forward ", "backward ")) for n in names), names
    assert "first.weight" in names, names
    assert "<svg" in r.to_html() and json.loads(r.to_json())["verdict"] == "fits"
    if mode == "fsdp":
        assert "all-gather" in kinds
        assert r.by_role()["parameter"] < 4 * (32 * 64 + 64 * 8 + 64 * 3 + 8) / 2   # split
""",
        timeout=300,
    )
    assert "fsdp" in out


@needs_libtpu
def test_too_large_for_a_tpu_is_a_verdict():
    """Weights that are too large; and a batch that is, where what is advised fits."""
    python_output(
        """
import re
import torch
from torch_tpu import aot
with torch.device("meta"): net, x = torch.nn.Linear(65536, 65536), torch.empty(8, 65536)
r = aot.compile(net, (x,), topology="v5e:1x1")
assert r.verdict == "too large" and r.peak_bytes >= 16 * 2**30, r
assert "does NOT fit" in str(r) and r.largest()[0][0] == "weight"
assert any("no batch fits" in a for a in r.advice()) and any("bfloat16 take 8.00 GiB less" in a for a in r.advice()), r.advice()

class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)) for _ in range(4))
    def forward(self, x):
        for l in self.layers: x = x + l(x)
        return x.square().mean()
def step(batch):
    with torch.device("meta"): net, x = Deep(), torch.empty(batch, 512)
    return aot.compile(net, (x,), topology="v5e:1x1", mode="train_step")
r = step(1 << 20)
assert r.verdict == "too large" and r.peak_bytes > 1.2 * r.topology.memory_bytes > 0, r
(name, size, shape), *_ = r.largest()
assert size == 8 << 30 and re.match("forward layers.|backward ", name) and "f32[1048576,2048]" in shape, r
assert any("recompute=True" in a for a in r.advice()) and any(a.startswith("2 devices with") for a in r.advice())
batch = int(re.search(r"[(](\\d+) instead of 1048576", "".join(r.advice()))[1]) // 1024 * 1024
assert step(batch).fits, batch
assert not step(batch * 5 // 4).fits
""",
        timeout=300,
    )
