"""The workloads in PyTorch, for every backend that is a torch device or a compiler of torch."""

import data
import models
import torch
from torch.nn import functional as F

BUILDERS = {}


def workload(build):
    """build(side) gives (step, count): step() does `count` units of work and returns what is checked."""
    BUILDERS[build.__name__] = build
    return build


class Side:
    def __init__(self, device: str, compiled: str):
        torch.set_num_threads(1)
        self.device, self.is_cpu = device, device == "cpu"
        self.compiled, self.compiler = compiled == "torch.compile", "inductor" if self.is_cpu else device
        self.has_whole_steps = compiled == "compile_step"

    def compile(self, function):
        if self.has_whole_steps:
            return torch.tpu.compile_step(function)
        return torch.compile(function, backend=self.compiler) if self.compiled else function

    def load(self, array) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def sync(self, _result=None):
        if not self.is_cpu:
            torch.accelerator.synchronize()

    @staticmethod
    def numbers(tensor):
        return tensor.detach().cpu().float().numpy()

    def programs(self) -> int | None:
        if self.compiled:
            return torch._dynamo.utils.counters["stats"]["unique_graphs"]
        return None if self.is_cpu else int(getattr(torch, self.device)._get_cache_stats().num_compilations)

    def peak_memory(self) -> int | None:
        return None if self.is_cpu else torch.accelerator.max_memory_allocated() or None

    def reset_peak_memory(self):
        if not self.is_cpu:
            torch.accelerator.reset_peak_memory_stats()


def versions(side: Side) -> dict[str, str]:
    import importlib.metadata
    import platform

    found = {"python": platform.python_version(), "torch": torch.__version__}
    if not side.is_cpu:
        side.load(data.ramp(8))
        module = __import__("torch_tpu")
        for package in importlib.metadata.packages_distributions().get("torch_tpu", []):
            found[package] = importlib.metadata.version(package)
        if hasattr(module, "_C") and hasattr(module._C, "_plugin_info"):
            info = module._C._plugin_info()
            found["plugin"] = info["path"]
            found["platform"] = f"{info['platform']}, PJRT API {info['api']}"
    return found


def repeat(function, count):
    """Every result is kept until the next call, so that no backend may leave it out."""
    kept = [None] * count

    def step():
        for i in range(count):
            kept[i] = function()
        return kept[-1]

    return step, count


# ---- small operators --------------------------------------------------------------------------------------------


@workload
def dispatch_add(side):
    x = side.load(data.ramp(8))
    return repeat(lambda: x + 1, 1000)


def add_repeatedly(x):
    def step():
        y = x
        for _ in range(1000):
            y = y + 1
        return y

    return step, 1000


@workload
def dispatch_dep(side):
    return add_repeatedly(side.load(data.ramp(8)))


@workload
def dispatch_dep_1k(side):
    return add_repeatedly(side.load(data.ramp(1024)))


@workload
def dispatch_wait(side):
    x = side.load(data.ramp(8))

    def step():
        for _ in range(300):
            y = x + 1
            side.sync()
        return y

    return step, 300


@workload
def dispatch_chain(side):
    x = side.load(data.ramp(1024))

    def chain(y):
        for _ in range(data.CHAIN):
            y = (y * 0.99 + 0.25).clamp(-4, 40) - 0.125
        return y

    chain = side.compile(chain)
    step, count = repeat(lambda: chain(x), 10)
    return step, count * 4 * data.CHAIN


@workload
def inplace_loop(side):
    x = side.load(data.ramp(8))

    def step():
        for _ in range(1000):
            x.add_(1)
        return x

    return step, 1000


@workload
def view_loop(side):
    x = side.load(data.floats("x", 64, 32))
    return repeat(lambda: x.t()[1:].unsqueeze(0), 1000)


@workload
def item(side):
    x = side.load(data.ramp(1))

    def step():
        for _ in range(300):
            value = (x + 1).item()
        return [value]

    return step, 300


@workload
def h2d_4k(side):
    host = torch.from_numpy(data.ramp(1024))
    return repeat(host.clone if side.is_cpu else lambda: host.to(side.device), 300)


@workload
def d2h_4k(side):
    x = side.load(data.ramp(1024))
    return repeat(x.clone if side.is_cpu else x.cpu, 300)


# ---- large operators --------------------------------------------------------------------------------------------


def forward_only(side, function, *arrays):
    function, inputs = side.compile(function), [side.load(a) for a in arrays]

    @torch.no_grad()
    def step():
        return function(*inputs)

    return step, 1


@workload
def pointwise_big(side):
    return forward_only(side, lambda x, y: F.gelu(2 * x + y).sum(), data.floats("x", 1 << 24), data.floats("y", 1 << 24))


@workload
def softmax(side):
    return forward_only(side, lambda x: x.softmax(-1), data.floats("x", 4096, 1024))


@workload
def layernorm(side):
    arrays = data.floats("x", 4096, 1024), data.floats("scale", 1024), data.floats("shift", 1024)
    return forward_only(side, lambda x, scale, shift: F.layer_norm(x, (1024,), scale, shift), *arrays)


@workload
def matmul(side):
    return forward_only(side, torch.matmul, data.floats("x", 1024, 1024), data.floats("y", 1024, 1024))


@workload
def conv2d(side):
    arrays = data.floats("x", 32, 64, 56, 56), data.floats("kernel", 64, 64, 3, 3)
    return forward_only(side, lambda x, kernel: F.conv2d(x, kernel, padding=1), *arrays)


@workload
def sort_1m(side):
    return forward_only(side, lambda x: x.sort().values, data.floats("x", 1 << 20))


@workload
def cumsum_1m(side):
    return forward_only(side, lambda x: x.cumsum(0), data.floats("x", 1 << 20))


@workload
def scatter_add_1m(side):
    arrays = data.floats("into", 100000), data.indices("at", 100000, 1 << 20), data.floats("x", 1 << 20)
    return forward_only(side, lambda into, at, x: into.scatter_add(0, at, x), *arrays)


def backward_only(side, function, x, grad):
    x, grad = side.load(x).requires_grad_(), side.load(grad)
    y = function(x)
    return lambda: torch.autograd.grad(y, x, grad, retain_graph=True)[0], 1


@workload
def sin_backward(side):
    return backward_only(side, torch.sin, data.floats("x", 1 << 20), data.floats("grad", 1 << 20))


@workload
def pow_backward(side):
    return backward_only(side, lambda x: x**2.5, data.positive("x", 1 << 20), data.floats("grad", 1 << 20))


@workload
def softmax_backward(side):
    return backward_only(side, lambda x: x.softmax(-1), data.floats("x", 1024, 1024), data.floats("grad", 1024, 1024))


# ---- models -------------------------------------------------------------------------------------------------------


def training(side, model, optimizer, loss_of, *arrays):
    model, batch = models.initialised(model, side.device), [side.load(a) for a in arrays]
    optimizer = optimizer(model.parameters())
    loss_of = loss_of if side.has_whole_steps else side.compile(loss_of)

    def train(*batch):
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        return loss

    train = side.compile(train) if side.has_whole_steps else train
    return lambda: train(*batch).item(), 1


def sgd(rate, momentum=0.9):
    return lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=momentum)


def classify(model, x, classes):
    return F.cross_entropy(model(x), classes)


@workload
def mlp_train(side):
    return training(side, models.mlp(), sgd(0.05), classify, data.floats("x", 64, 128), data.indices("y", 10, 64))


@workload
def resnet_train(side):
    arrays = data.floats("x", 16, 3, 32, 32), data.indices("y", 10, 16)
    return training(side, models.resnet(), sgd(0.02), classify, *arrays)


@workload
def dlrm_train(side):
    def loss_of(model, features, bags, clicked):
        return F.binary_cross_entropy_with_logits(model(features, bags), clicked)

    bags = data.indices("bags", data.ROWS, data.TABLES, data.CLICKS, data.BAG)
    clicked = data.indices("clicked", 2, data.CLICKS).astype("float32")
    return training(side, models.DLRM(), sgd(0.1, 0), loss_of, data.floats("x", data.CLICKS, 13), bags, clicked)


@workload
def gpt_train(side):
    def loss_of(model, ids, wanted):
        return F.cross_entropy(model(ids).flatten(0, 1), wanted.flatten())

    adamw = lambda parameters: torch.optim.AdamW(parameters, **data.ADAMW)  # noqa: E731
    texts = [data.indices(name, data.VOCABULARY, data.BATCH, data.LENGTH) for name in ("ids", "wanted")]
    return training(side, models.GPT(), adamw, loss_of, *texts)


@workload
def gpt_fwd(side):
    model = models.initialised(models.GPT(), side.device)
    return forward_only(side, lambda ids: model(ids), data.indices("ids", data.VOCABULARY, data.BATCH, data.LENGTH))


@workload
def adamw_step(side):
    parameters = [torch.nn.Parameter(side.load(data.floats(f"parameter {i}", 64, 64))) for i in range(50)]
    for i, p in enumerate(parameters):
        p.grad = side.load(data.floats(f"gradient {i}", 64, 64))
    optimizer = torch.optim.AdamW(parameters, **data.ADAMW)
    update = side.compile(lambda: optimizer.step())

    def step():
        update()
        return parameters[7]

    return step, 1


@workload
def shapes(side):
    model = models.initialised(models.sequence_model(), side.device)
    arrays = [data.floats(f"sequence {n}", 4, n, 64) for n in data.LENGTHS]
    energy = side.compile(lambda x: model(x).softmax(1).square().sum())

    @torch.no_grad()
    def step():
        return [energy(side.load(a)).item() for a in arrays]

    return step, 1
