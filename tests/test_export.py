"""torch.export's programs on the device, and as StableHLO modules that stand alone: run again, they give the same."""

import copy
import re
import sys

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE, assert_same, python_output, to_device
from torch import nn

from torch_tpu import export


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.norm = nn.Embedding(11, 16), nn.Linear(16, 48), nn.LayerNorm(16)
        self.register_buffer("scale", torch.tensor([0.5]), persistent=False)

    def forward(self, tokens, mask=None):
        x = self.norm(self.embed(tokens))
        q, k, v = self.qkv(x).view(*tokens.shape, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return y.transpose(1, 2).flatten(2) * self.scale, x[:, 1:].sum(-1)


class Indexing(nn.Module):
    def forward(self, x, i):
        values, order = torch.sort(x, dim=1, descending=True)
        picked = x.gather(1, i) + x.cumsum(0)[:, :2]
        return {"values": values, "order": order, "picked": picked, "mask": x > 0, "first": x[0], "input": x}


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(x.sum(0))
        return x * self.count


class Arange(nn.Module):
    def forward(self, x):
        return x + torch.arange(x.shape[1], device=x.device) * torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.ones(2), x.t()


CONV = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1, groups=3), nn.BatchNorm2d(6), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 4))
CASES = {
    "conv": (CONV.eval(), (torch.randn(2, 3, 8, 8),), {}),
    "attention": (Attention(), (torch.randint(0, 11, (2, 5)),), {}),
    "attention with keywords": (Attention(), (torch.randint(0, 11, (2, 5)),), {"mask": torch.rand(2, 2, 5, 5) > 0.3}),
    "indexing": (Indexing(), (torch.randn(4, 4), torch.randint(0, 4, (4, 2))), {}),
    "buffers": (Counter(), (torch.randn(2, 3),), {}),
    "constants": (Arange(), (torch.randn(2, 4),), {}),
    "complex and half": (nn.Identity(), (torch.randn(3, dtype=torch.complex64), torch.ones(2, dtype=torch.float16))[:1], {}),
}


def arrays(module, program):
    """What main takes, by what it says of its inputs."""
    flat = torch.utils._pytree.tree_leaves(program.example_inputs)
    users = iter([t for t in flat if isinstance(t, torch.Tensor)])
    found = {**program.state_dict, **program.constants}
    return [next(users) if spec.kind == "user_input" else found[spec.name] for spec in module.inputs]


@pytest.mark.parametrize("weights_as_constants", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_modules_give_what_the_model_gives(name, weights_as_constants, tmp_path):
    model, args, kwargs = CASES[name]
    model = copy.deepcopy(model)
    program = torch.export.export(model, args, kwargs)
    before = {k: v.clone() for k, v in program.state_dict.items()}
    module = export.to_stablehlo(program, weights_as_constants=weights_as_constants, name=name)
    assert all(v.device.type == "cpu" and torch.equal(v, before[k]) for k, v in program.state_dict.items())
    assert "custom_call" not in module.text and "aliasing" not in module.text
    inputs = arrays(module, program)
    assert not weights_as_constants or all(spec.kind == "user_input" for spec in module.inputs)
    module.save(tmp_path / "model.mlir")
    again = export.load(tmp_path / "model.mlir")
    for ours, theirs in ((module.inputs, again.inputs), (module.outputs, again.outputs)):
        assert [(s.dtype, s.shape) for s in ours] == [(s.dtype, s.shape) for s in theirs]
    results = dict(zip(module.outputs, again(*to_device(inputs)), strict=True))
    expected = torch.utils._pytree.tree_leaves(model(*args, **kwargs))
    got = [value for spec, value in results.items() if spec.kind == "user_output"]
    assert_same(got, expected, rtol=1e-4, atol=1e-5)
    assert all(value.is_contiguous() for value in got)
    if name == "buffers":
        (changed,) = [value for spec, value in results.items() if spec.kind == "buffer_mutation"]
        assert_same(changed, dict(model.named_buffers())["count"])


@pytest.mark.parametrize("name", CASES)
def test_exported_programs_run_on_the_device(name):
    model, args, kwargs = CASES[name]
    expected = copy.deepcopy(model)(*args, **kwargs)
    from torch.export.passes import move_to_device_pass

    moved = move_to_device_pass(torch.export.export(copy.deepcopy(model), args, kwargs), DEVICE).module()
    got = moved(*to_device(args), **to_device(kwargs))
    assert_same(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(expected), rtol=1e-4, atol=1e-5)


def test_models_on_the_device_are_exported_too():
    model = nn.Linear(3, 2).to(DEVICE)
    x = torch.randn(4, 3, device=DEVICE)
    module = export.to_stablehlo(model, (x,))
    assert [spec.kind for spec in module.inputs] == ["parameter", "parameter", "user_input"]
    assert [spec.name for spec in module.inputs[:2]] == ["weight", "bias"]
    assert_same(module(model.weight, model.bias, x)[0], model(x).detach())
    wide = torch.randn(4, 6, device=DEVICE)[:, ::2]
    assert_same(module(model.weight, model.bias, wide)[0], model(wide).detach())  # a view is made dense


def test_dynamic_sizes_are_those_of_the_example():
    batch = torch.export.Dim("batch")
    program = torch.export.export(nn.Linear(3, 2), (torch.randn(4, 3),), dynamic_shapes=({0: batch},))
    module = export.to_stablehlo(program)
    assert module.inputs[-1].shape == (4, 3) and module.outputs[0].shape == (4, 2)


def test_precision_is_in_the_text():
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    with torch.tpu.precision("high"):
        assert "precision HIGH>" in export.to_stablehlo(model, (x,)).text
    assert "precision" not in re.sub("mhlo.*", "", export.to_stablehlo(model, (x,)).text)


@pytest.mark.parametrize("version", [None, "1.0.0"])
def test_bytecode_is_the_same_module(version):
    pytest.importorskip("jaxlib", reason="jaxlib is not installed: pip install --no-deps jaxlib")
    from torch_tpu import _bytecode

    model, x = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Softmax(1)), torch.randn(4, 3)
    bytecode = export.to_stablehlo(model, (x,), weights_as_constants=True).bytecode(version)
    assert bytecode.startswith(b"ML\xefR") and f"StableHLO_v{version or ''}".encode() in bytecode
    (y,) = export.StableHLO(_bytecode.read(bytecode))(x.to(DEVICE))
    torch.testing.assert_close(y.cpu(), model(x).detach())


def test_what_cannot_be_exported_says_so(monkeypatch):
    with pytest.raises(NotImplementedError, match="draws random numbers"):
        export.to_stablehlo(nn.Dropout(0.5).train(), (torch.randn(3),))
    module = export.to_stablehlo(nn.ReLU(), (torch.randn(3),))
    monkeypatch.setitem(sys.modules, "jaxlib.mlir", None)
    monkeypatch.delitem(sys.modules, "torch_tpu._bytecode", raising=False)
    monkeypatch.delattr(sys.modules["torch_tpu"], "_bytecode", raising=False)
    with pytest.raises(NotImplementedError, match="stablehlo-translate"):
        module.bytecode()
    with pytest.raises(TypeError, match="takes 1 arrays, got 2"):
        module(torch.ones(3), torch.ones(3))
    for wrong in (torch.ones(3), torch.ones(4, device=DEVICE), torch.ones(3, device=DEVICE, dtype=torch.float64)):
        with pytest.raises(ValueError, match="input 0 of the module is torch.float32"):
            module(wrong)
    with pytest.raises(TypeError, match="has its example arguments"):
        export.to_stablehlo(torch.export.export(nn.ReLU(), (torch.randn(3),)), (torch.randn(3),))
    with pytest.raises(ValueError, match="no function main"):
        export.StableHLO("module {}")
    with pytest.raises(RuntimeError, match="refused the module"):
        export.StableHLO("module { func.func public @main(%0: tensor<3xf32>) -> tensor<3xf32> { nonsense } }")(torch.ones(3, device=DEVICE))


def test_modules_from_elsewhere():
    text = """
        module {
          func.func public @main(%a: tensor<2xf32>, %b: tensor<2xi1>) -> (tensor<2xf32>, tensor<i32>) {
            %z = stablehlo.constant dense<0.0> : tensor<2xf32>
            %0 = stablehlo.select %b, %a, %z : tensor<2xi1>, tensor<2xf32>
            %1 = stablehlo.constant dense<7> : tensor<i32>
            return %0, %1 : tensor<2xf32>, tensor<i32>
          }
        }"""
    module = export.StableHLO(text)
    picked, seven = module(torch.tensor([1.0, 2.0], device=DEVICE), torch.tensor([True, False], device=DEVICE))
    assert picked.tolist() == [1, 0] and seven.item() == 7 and seven.dtype == torch.int32
    assert (picked + 1).tolist() == [2, 1]
    zeros = module(torch.zeros(2, device=DEVICE), torch.ones(2, dtype=torch.bool, device=DEVICE))[0]  # never uploaded
    assert zeros.tolist() == [0, 0]


def test_exporting_leaves_nothing_behind():
    out = python_output("""
        import gc, torch, torch_tpu.export
        model = torch.nn.Linear(256, 256)
        for _ in range(3):
            module = torch_tpu.export.to_stablehlo(model, (torch.ones(4, 256),), weights_as_constants=True)
            gc.collect(); torch.tpu.synchronize()
        print(torch.tpu.memory_allocated() < 100_000, (torch.ones(3, device="tpu") + 1).tolist())
    """)
    assert out == "True [2.0, 2.0, 2.0]"
