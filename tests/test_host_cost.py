"""What a call costs on the host beside the plugin's work: memory that is allocated, and the typed kernels that save a stack."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
import torch_tpu._C as C
from conftest import python_output


# ---- allocations ----------------------------------------------------------------------------------------------

COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
uintptr_t counted_from, counted_to; /* the code whose allocations count */
long counted;
static void count(void *caller) { counted += (uintptr_t)caller - counted_from < counted_to - counted_from; }
void *malloc(size_t n) { count(__builtin_return_address(0)); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { count(__builtin_return_address(0)); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { count(__builtin_return_address(0)); return __libc_realloc(p, n); }
void *operator_new(size_t n) __asm__("_Znwm");
void *operator_new(size_t n) { count(__builtin_return_address(0)); return __libc_malloc(n); }
"""

ALLOCATIONS = r"""
import ctypes, json, os, torch, torch_tpu._C as C
counter = ctypes.CDLL(None)
counted = ctypes.c_long.in_dll(counter, "counted")
path = os.path.realpath(C.__file__)
spans = [line.split()[0].split("-") for line in open("/proc/self/maps") if line.rstrip().endswith(path)]
ctypes.c_void_p.in_dll(counter, "counted_to").value = int(spans[-1][1], 16)
ctypes.c_void_p.in_dll(counter, "counted_from").value = int(spans[0][0], 16)
x, y, one = torch.ones(8, device="tpu"), torch.ones(4, 2, device="tpu"), torch.ones(1, device="tpu")
out, host = torch.ones(8, device="tpu"), torch.ones(1024)
device_host = host.to("tpu")
_, mean, rstd = torch.native_layer_norm(y, [2], None, None, 1e-5)
norm_backward = (y, [2], mean, rstd, None, None, [True, False, False])
calls = {
    "x + 1": lambda: x + 1,
    "x + x": lambda: x + x,
    "x * 1.5": lambda: x * 1.5,
    "neg": lambda: torch.neg(x),
    "clamp": lambda: x.clamp(-3, 3),
    "gelu": lambda: torch.nn.functional.gelu(x),
    "sum(0)": lambda: y.sum(0),
    "mm": lambda: torch.mm(y, y.t()),
    "softmax": lambda: torch._softmax(y, 1, False),
    "layer norm": lambda: torch.native_layer_norm(y, [2], None, None, 1e-5),
    "layer norm backward": lambda: torch.ops.aten.native_layer_norm_backward(y, *norm_backward),
    "add_": lambda: x.add_(1),
    "mul out": lambda: torch.mul(x, x, out=out),
    "copy_": lambda: out.copy_(x),
    "item": lambda: one.item(),
    "empty": lambda: torch.empty(8, device="tpu"),
    "view": lambda: y.t()[1:].unsqueeze(0),
    "cpu": lambda: device_host.cpu(),
}
result = {}
for name, call in calls.items():
    for _ in range(20):
        call()
    before = counted.value
    for _ in range(10000):
        call()
    result[name] = (counted.value - before) / 10000
print(json.dumps(result))
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs a C compiler and LD_PRELOAD")
def test_a_call_allocates_its_tensor_and_no_more(tmp_path):
    source, library = tmp_path / "counter.c", tmp_path / "counter.so"
    source.write_text(COUNTER)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    counts = json.loads(python_output(ALLOCATIONS, LD_PRELOAD=str(library), TORCH_TPU_DEFER_AND_FUSE="0"))
    nothing = ("add_", "mul out", "copy_", "item", "empty", "view", "cpu")  # PyTorch's code makes their tensors, if any
    tensors = {name: 0 if name in nothing else 3 if name == "layer norm" else 1 for name in counts}
    wanted = {name: 2 * n for name, n in tensors.items()}  # a TensorImpl and a StorageImpl
    assert {name: round(n, 2) for name, n in counts.items()} == pytest.approx(wanted, abs=0.01)


# ---- typed kernels -------------------------------------------------------------------------------------------

# One call at least for each C++ function type that has typed kernels; `test_every_typed_signature_is_called` sees to that.
CALLS = r"""
import json, sys, torch
ops = torch.ops.aten

def calls(dev):
    def t(*shape, dtype=torch.float32, low=0.1, high=2.0):
        g = torch.Generator().manual_seed(len(shape) + sum(shape))
        return (torch.rand(*shape, generator=g) * (high - low) + low).to(dtype).to(dev)
    x, y, z = t(3, 4), t(3, 4) + 1, t(3, 4) - 0.5
    square, index = t(4, 4), torch.tensor([2, 0, 1], device=dev)
    out = torch.empty(3, 4, device=dev)
    weight, bias = t(4), t(4) - 1
    mask = x > 1
    norm = ops.native_layer_norm.default(x, [4], weight, bias, 1e-5)
    nll = ops.nll_loss_forward.default(x, index, None, 1, -100)
    soft = ops._softmax.default(x, 1, False)
    yield "neg", ops.neg.default(x)
    yield "mul.Tensor", ops.mul.Tensor(x, y)
    yield "mul.Tensor", ops.mul.Tensor(x, torch.tensor(2.5))
    yield "mm", ops.mm.default(square, square.t())
    yield "mul.Scalar", ops.mul.Scalar(x, 2)
    yield "pow.Scalar", ops.pow.Scalar(2, x)
    yield "add.Tensor", ops.add.Tensor(x, y, alpha=3)
    yield "add.Tensor", ops.add.Tensor(x[:, 1:], y[:, :3].to(torch.float64), alpha=-1)
    yield "add.Scalar", ops.add.Scalar(x, 2.5, 3)
    yield "where.self", ops.where.self(mask, x, y)
    yield "addcmul", ops.addcmul.default(x, y, z, value=0.5)
    yield "clamp", ops.clamp.default(x, None, 1.5)
    yield "clamp", ops.clamp.default(x, 0.5, None)
    yield "gelu", ops.gelu.default(x, approximate="tanh")
    yield "gelu", ops.gelu.default(x)
    yield "gelu_backward", ops.gelu_backward.default(x, y, approximate="none")
    yield "neg_", ops.neg_.default(x.clone())
    yield "mul_.Tensor", ops.mul_.Tensor(x.clone()[:, ::2], y[:, ::2])
    yield "mul_.Scalar", ops.mul_.Scalar(x.clone(), 3)
    yield "add_.Tensor", ops.add_.Tensor(x.clone(), y, alpha=2)
    yield "add_.Scalar", ops.add_.Scalar(x.clone(), 2, 3)
    yield "masked_fill_.Tensor", ops.masked_fill_.Tensor(x.clone(), mask, torch.tensor(7.0, device=dev))
    yield "addcdiv_", ops.addcdiv_.default(x.clone(), y, y + 1, value=2)
    yield "clamp_", ops.clamp_.default(x.clone(), 0.3, 1.1)
    yield "neg.out", ops.neg.out(x, out=out)
    yield "mul.out", ops.mul.out(x, y, out=out.t().clone().t())
    yield "mul.out", ops.mul.out(x, y, out=torch.empty(0, device=dev))
    yield "mul.Scalar_out", ops.mul.Scalar_out(x, 3, out=out.clone())
    yield "add.out", ops.add.out(x, y, alpha=2, out=out.clone())
    yield "addmm", ops.addmm.default(bias, x, square, beta=0.5, alpha=2)
    yield "linear", ops.linear.default(x, square, bias)
    yield "linear", ops.linear.default(x, square)
    yield "sum", ops.sum.default(x, dtype=torch.float64)
    yield "sum.dim_IntList", ops.sum.dim_IntList(x, [1], True)
    yield "sum.dim_IntList", ops.sum.dim_IntList(x, None, False, dtype=torch.float64)
    yield "amax", ops.amax.default(x, [0], True)
    yield "_softmax", soft
    yield "argmax", ops.argmax.default(x, None, False)
    yield "argmax", ops.argmax.default(x, 1, True)
    yield "max.dim", ops.max.dim(x, 1, True)
    yield "cumsum", ops.cumsum.default(x, 1, dtype=torch.float64)
    yield "_softmax_backward_data", ops._softmax_backward_data.default(y, soft, 1, torch.float32)
    yield "tril", ops.tril.default(x, 1)
    yield "mse_loss", ops.mse_loss.default(x, y, 2)
    yield "mse_loss_backward", ops.mse_loss_backward.default(x, y, z, 0)
    yield "nll_loss_forward", nll
    yield "nll_loss_backward", ops.nll_loss_backward.default(nll[0], x, index, None, 1, -100, nll[1])
    yield "native_layer_norm", norm
    yield "native_layer_norm", ops.native_layer_norm.default(x, [4], None, None, 1e-5)
    yield "native_layer_norm_backward", ops.native_layer_norm_backward.default(
        y, x, [4], norm[1], norm[2], weight, bias, [True, True, True])
    yield "native_dropout", ops.native_dropout.default(x, 0.0, True)
    yield "native_dropout_backward", ops.native_dropout_backward.default(x, mask, 2.0)
    yield "embedding", ops.embedding.default(square, index)
    yield "embedding_dense_backward", ops.embedding_dense_backward.default(x, index, 4, -1, False)
    yield "index_select", ops.index_select.default(x, 0, index)
    yield "gather", ops.gather.default(x, 0, index[:, None].expand(3, 4).contiguous())
    image, kernel = t(2, 3, 6, 6), t(4, 3, 3, 3)
    yield "convolution", ops.convolution.default(image, kernel, bias, [1, 2], [1, 1], [1, 1], False, [0, 0], 1)

def refused(dev):
    x, flat = torch.ones(3, 4, device=dev), torch.ones(8, device=dev)
    yield lambda: ops.add.Tensor(x, torch.ones(3, 5, device=dev))
    yield lambda: ops.add_.Tensor(torch.ones(3, 4, dtype=torch.int64, device=dev), x)
    yield lambda: ops.add_.Tensor(flat[1:], flat[:-1])
    yield lambda: ops.neg_.default(flat[:1].expand(4))
    yield lambda: ops.mm.default(x, x)
    yield lambda: ops.mul.out(x, x, out=torch.ones(3, 4, dtype=torch.int64, device=dev))
    yield lambda: ops._softmax.default(x, 5, False)
    yield lambda: ops.mm.default(torch.ones(2, 2), torch.ones(2, 2, device=dev))

def dropped():
    torch.manual_seed(3)
    return ops.native_dropout.default(torch.ones(64, device="tpu"), 0.5, True)[0].cpu().tolist()

def flat(result):
    tensors = result if isinstance(result, (tuple, list)) else [result]
    return [[str(r.dtype), list(r.shape), list(r.stride()), r.detach().cpu().double().flatten().tolist()] for r in tensors]

def message(call):
    try:
        call()
    except Exception as e:
        return f"{type(e).__name__}: {e}".splitlines()[0]
    return "no failure"

both = {dev: [[name, flat(result)] for name, result in calls(dev)] for dev in ("cpu", "tpu")}
both["refused"] = [message(call) for call in refused("tpu")]
both["rng"] = [dropped() for _ in range(2)]
print(json.dumps(both))
"""


@pytest.fixture(scope="module")
def answers() -> dict:
    """What the calls give with typed kernels ("0") and with boxed ones ("1")."""
    options = {"timeout": 600, "TORCH_TPU_CPU_FALLBACK": "error"}
    return {boxed: json.loads(python_output(CALLS, TORCH_TPU_INTERNAL_BOXED=boxed, **options)) for boxed in "01"}


def test_typed_and_boxed_kernels_agree(answers):
    assert answers["0"]["tpu"] == answers["1"]["tpu"]
    assert answers["0"]["rng"] == answers["1"]["rng"] and answers["0"]["rng"][0] == answers["0"]["rng"][1]


def test_typed_kernels_give_what_the_cpu_gives(answers):
    for (name, cpu), (_, tpu) in zip(answers["0"]["cpu"], answers["0"]["tpu"], strict=True):
        assert [r[:3] for r in tpu] == [r[:3] for r in cpu], name
        for ours, theirs in zip(tpu, cpu):
            assert ours[3] == pytest.approx(theirs[3], rel=1e-5, abs=1e-5, nan_ok=True), name


def test_typed_kernels_refuse_in_the_same_words(answers):
    assert answers["0"]["refused"] == answers["1"]["refused"]
    assert not any("no failure" in m for m in answers["0"]["refused"]), answers["0"]["refused"]


def test_every_typed_signature_is_called(answers):
    signatures = {op["name"]: op["signature"] for op in C._op_table()}
    called = {signatures[name] for name, _ in answers["0"]["tpu"]}
    assert set(C._typed_signatures()) - called == set()
