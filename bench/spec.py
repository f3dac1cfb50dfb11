"""What is measured: one row per workload. Knows no framework, so every process can read it."""

from dataclasses import dataclass
from functools import cached_property

EAGER = frozenset({"cpu", "strict", "fused", "ref-strict", "ref-fused"})
# Letters of the table's third column.
PEERS = {"t": "compiled", "s": "step", "r": "ref-compiled", "c": "inductor", "j": "jax", "p": "jax-plugin", "f": "floor"}


@dataclass(frozen=True)
class Backend:
    name: str
    title: str
    kind: str  # torch, jax or floor: which worker serves it
    env: tuple[tuple[str, str], ...] = ()
    device: str = "tpu"
    compiled: str = ""  # by what: torch.compile, or compile_step for whole steps

    @property
    def is_reference(self) -> bool:
        return self.name.startswith("ref-")


FUSE = ("TORCH_TPU_DEFER_AND_FUSE", "1")
STRICT = ("TORCH_TPU_DEFER_AND_FUSE", "0")
NO_DEVICE = ("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
BASELINE = "cpu"
BACKENDS = {
    b.name: b
    for b in (
        Backend("cpu", "torch CPU", "torch", (NO_DEVICE,), "cpu"),
        Backend("strict", "Strict", "torch", (STRICT,)),
        Backend("fused", "DeferAndFuse", "torch", (FUSE,)),
        Backend("ref-strict", "reference, strict", "torch", (STRICT,)),
        Backend("ref-fused", "reference, fused", "torch", (FUSE,)),
        Backend("compiled", "torch.compile", "torch", (STRICT,), compiled="torch.compile"),
        Backend("step", "compile_step", "torch", (STRICT,), compiled="compile_step"),
        Backend("ref-compiled", "reference, compiled", "torch", (STRICT,), compiled="torch.compile"),
        Backend("inductor", "inductor", "torch", (NO_DEVICE,), "cpu", compiled="torch.compile"),
        Backend("jax", "JAX jit", "jax", (("JAX_PLATFORMS", "cpu"),)),
        Backend("jax-plugin", "JAX jit, this plugin", "jax", (("JAX_PLATFORMS", "plugin"),)),
        Backend("floor", "C on PJRT", "floor"),
    )
}


@dataclass(frozen=True)
class Workload:
    name: str
    unit: str
    peers: str  # beside torch eager: letters of PEERS
    what: str
    # held: one process gives all samples. Otherwise each sample is a new process, and its time runs from the start of
    # the process ("process") or of the step within it ("step"); with "warm", its compile cache was filled before.
    clock: str = "held"
    tolerance: float = 1e-3
    warm: bool = False

    @cached_property
    def backends(self) -> frozenset[str]:
        return EAGER | {PEERS[letter] for letter in self.peers}


SCALE = {"us": 1e6, "ms": 1e3, "s": 1.0}

GROUPS = {
    "Small operators": (
        "Microseconds for one operator, transfer or read, in loops of hundreds with one wait at their end. The work itself is next to nothing: "
        "what is measured is the path from Python to the kernel. The floor is the same through PJRT from plain C, and nothing above PJRT can be faster than it "
        "unless it runs fewer programs. inductor and JAX run the chain as one program.",
        (
            Workload("dispatch_add", "us", "jf", "x + 1, 8 floats, results kept"),
            Workload("dispatch_dep", "us", "jf", "y = y + 1, each on the last"),
            Workload("dispatch_dep_1k", "us", "jf", "y = y + 1, 1024 floats"),
            Workload("dispatch_wait", "us", "jf", "x + 1, then wait for it"),
            Workload("dispatch_chain", "us", "cj", "chain of 100 pointwise operators, 1024 floats"),
            Workload("inplace_loop", "us", "", "x.add_(1)"),
            Workload("view_loop", "us", "", "x.t()[1:].unsqueeze(0)"),
            Workload("item", "us", "jf", "(x + 1).item()"),
            Workload("h2d_4k", "us", "jf", "4 KB to the device (CPU: a copy)"),
            Workload("d2h_4k", "us", "jf", "4 KB back (CPU: a copy)"),
        ),
    ),
    "Large operators": (
        "Milliseconds. Kernels dominate: the plugin's, except where this project brings its own (sort, scans, row operators). "
        "Backwards are the backward alone; forwards run without autograd.",
        (
            Workload("pointwise_big", "ms", "cj", "gelu(2x + y).sum(), 16M floats"),
            Workload("softmax", "ms", "cj", "softmax, 4096 x 1024"),
            Workload("layernorm", "ms", "cj", "layer norm, 4096 x 1024"),
            Workload("matmul", "ms", "j", "matrix product, 1024 x 1024"),
            Workload("conv2d", "ms", "j", "3 x 3 convolution, 32 x 64 x 56 x 56"),
            Workload("sort_1m", "ms", "j", "sort, 1M floats"),
            Workload("cumsum_1m", "ms", "j", "cumsum, 1M floats", tolerance=2e-3),
            Workload("scatter_add_1m", "ms", "j", "scatter_add, 1M floats into 100k"),
            Workload("sin_backward", "ms", "j", "backward of sin, 1M floats"),
            Workload("pow_backward", "ms", "j", "backward of x ** 2.5, 1M floats"),
            Workload("softmax_backward", "ms", "j", "backward of softmax, 1024 x 1024"),
        ),
    ),
    "Models": (
        "Milliseconds for a step that ends with its result on the host: zero_grad, forward, loss, backward, optimizer, loss.item(). "
        "Many middling operators: dispatch and kernels both count. torch.compile and inductor compile forward and backward, compile_step and JAX the whole step.",
        (
            Workload("mlp_train", "ms", "tsrcjp", "MLP 128-256-256-10, batch 64, SGD"),
            Workload("adamw_step", "ms", "tscj", "AdamW step, 50 parameters of 64 x 64"),
            Workload("gpt_fwd", "ms", "tsrcjp", "GPT forward: 4 layers, d 128, T 64, B 4"),
            Workload("gpt_train", "ms", "tsrcjp", "GPT train step with AdamW, the same sizes", tolerance=2e-3),
            Workload("resnet_train", "ms", "tsc", "ResNet, 4 blocks, 16 x 3 x 32 x 32, SGD", tolerance=5e-3),
            Workload("dlrm_train", "ms", "tscj", "DLRM, 4 embedding bags, batch 128, SGD"),
            Workload("shapes_again", "ms", "cj", "50 sequence lengths, second pass"),
        ),
    ),
    "First use": (
        "Seconds, each sample in a new process. Compilation dominates all but `import`. First forwards count from the start of the process; all others "
        "from the start of the step. Compile caches are empty unless it says warm (TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT, and the like of inductor and JAX).",
        (
            Workload("import", "s", "j", "process start until torch (or jax) is imported", "process"),
            Workload("first_fwd_cold", "s", "trcjp", "first GPT forward, empty cache", "process"),
            Workload("first_fwd_warm", "s", "trcjp", "first GPT forward, warm cache", "process", warm=True),
            Workload("first_mlp", "s", "trcjp", "first MLP train step, empty cache", "step"),
            Workload("first_train", "s", "trcjp", "first GPT train step, empty cache", "step", tolerance=2e-3),
            Workload("first_train_warm", "s", "trcjp", "first GPT train step, warm cache", "step", tolerance=2e-3, warm=True),
            Workload("shapes_first", "s", "cj", "50 sequence lengths, first pass", "step"),
        ),
    ),
}
WORKLOADS = {w.name: w for _, (_, rows) in GROUPS.items() for w in rows}
# The workload that a process-level one runs (import runs none).
BODY = {"first_fwd_cold": "gpt_fwd", "first_fwd_warm": "gpt_fwd", "first_mlp": "mlp_train", "first_train": "gpt_train", "first_train_warm": "gpt_train",
        "shapes_first": "shapes", "shapes_again": "shapes"}
QUICK = ("dispatch_dep", "item", "softmax", "mlp_train", "import")
QUICK_BACKENDS = ("cpu", "strict", "fused", "jax", "floor")
MEMORY = ("mlp_train", "gpt_train", "resnet_train", "dlrm_train")
