"""The workloads in plain JAX: the same numbers, whole steps in one jit."""

from functools import partial

import data
import jax
import jax.numpy as jnp
import numpy as np

BUILDERS = {}


def workload(build):
    BUILDERS[build.__name__] = build
    return build


class Side:
    def __init__(self, device: str, compiled: str):
        self.compiled = 0
        jax.monitoring.register_event_duration_secs_listener(self._count)
        self.sync = jax.block_until_ready

    def _count(self, event: str, *_args, **_more):
        self.compiled += event.endswith("backend_compile_duration")

    @staticmethod
    def numbers(array):
        return np.asarray(array, dtype=np.float32)

    def programs(self) -> int:
        return self.compiled

    def peak_memory(self) -> None:
        return None

    def reset_peak_memory(self):
        pass


def versions(_side) -> dict[str, str]:
    import platform

    return {"python": platform.python_version(), "jax": jax.__version__}


# ---- small operators --------------------------------------------------------------------------------------------


def repeat(function, count):
    kept = [None] * count

    def step():
        for i in range(count):
            kept[i] = function()
        return kept[-1]

    return step, count


@workload
def dispatch_add(_side):
    x, plus_one = jnp.asarray(data.ramp(8)), jax.jit(lambda x: x + 1)
    return repeat(lambda: plus_one(x), 1000)


def add_repeatedly(x):
    plus_one = jax.jit(lambda x: x + 1)

    def step():
        y = x
        for _ in range(1000):
            y = plus_one(y)
        return y

    return step, 1000


@workload
def dispatch_dep(_side):
    return add_repeatedly(jnp.asarray(data.ramp(8)))


@workload
def dispatch_dep_1k(_side):
    return add_repeatedly(jnp.asarray(data.ramp(1024)))


@workload
def dispatch_wait(_side):
    x, plus_one = jnp.asarray(data.ramp(8)), jax.jit(lambda x: x + 1)
    return repeat(lambda: plus_one(x).block_until_ready(), 300)


@workload
def dispatch_chain(_side):
    @jax.jit
    def chain(y):
        for _ in range(data.CHAIN):
            y = jnp.clip(y * 0.99 + 0.25, -4, 40) - 0.125
        return y

    x = jnp.asarray(data.ramp(1024))
    step, count = repeat(lambda: chain(x), 10)
    return step, count * 4 * data.CHAIN


@workload
def item(_side):
    x, plus_one = jnp.asarray(data.ramp(1)), jax.jit(lambda x: x + 1)

    def step():
        for _ in range(300):
            value = plus_one(x).item()
        return [value]

    return step, 300


@workload
def h2d_4k(_side):
    host = data.ramp(1024)
    return repeat(lambda: jnp.array(host), 300)


@workload
def d2h_4k(_side):
    x = jnp.asarray(data.ramp(1024))
    return repeat(lambda: np.array(x), 300)


# ---- large operators --------------------------------------------------------------------------------------------


def forward_only(function, *arrays):
    function, inputs = jax.jit(function), [jnp.asarray(a) for a in arrays]
    return lambda: function(*inputs), 1


def gelu(x):
    return jax.nn.gelu(x, approximate=False)


def layer_norm(x, scale, shift):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5) * scale + shift


@workload
def pointwise_big(_side):
    return forward_only(lambda x, y: gelu(2 * x + y).sum(), data.floats("x", 1 << 24), data.floats("y", 1 << 24))


@workload
def softmax(_side):
    return forward_only(lambda x: jax.nn.softmax(x, -1), data.floats("x", 4096, 1024))


@workload
def layernorm(_side):
    return forward_only(layer_norm, data.floats("x", 4096, 1024), data.floats("scale", 1024), data.floats("shift", 1024))


@workload
def matmul(_side):
    return forward_only(jnp.matmul, data.floats("x", 1024, 1024), data.floats("y", 1024, 1024))


@workload
def conv2d(_side):
    convolve = partial(jax.lax.conv, window_strides=(1, 1), padding="SAME")
    return forward_only(convolve, data.floats("x", 32, 64, 56, 56), data.floats("kernel", 64, 64, 3, 3))


@workload
def sort_1m(_side):
    return forward_only(jnp.sort, data.floats("x", 1 << 20))


@workload
def cumsum_1m(_side):
    return forward_only(jnp.cumsum, data.floats("x", 1 << 20))


@workload
def scatter_add_1m(_side):
    arrays = data.floats("into", 100000), data.indices("at", 100000, 1 << 20), data.floats("x", 1 << 20)
    return forward_only(lambda into, at, x: into.at[at].add(x), *arrays)


def backward_only(function, x, grad):
    """As PyTorch saves the input of these functions, not their derivative, that is computed here too."""
    run = jax.jit(lambda x, grad: jax.vjp(function, x)[1](grad)[0])
    x, grad = jnp.asarray(x), jnp.asarray(grad)
    return lambda: run(x, grad), 1


@workload
def sin_backward(_side):
    return backward_only(jnp.sin, data.floats("x", 1 << 20), data.floats("grad", 1 << 20))


@workload
def pow_backward(_side):
    return backward_only(lambda x: x**2.5, data.positive("x", 1 << 20), data.floats("grad", 1 << 20))


@workload
def softmax_backward(_side):
    _, pullback = jax.vjp(jax.nn.softmax, jnp.asarray(data.floats("x", 1024, 1024)))
    run, grad = jax.jit(lambda pullback, grad: pullback(grad)[0]), jnp.asarray(data.floats("grad", 1024, 1024))
    return lambda: run(pullback, grad), 1


# ---- models -------------------------------------------------------------------------------------------------------


def linear(p, name, x):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def cross_entropy(logits, classes):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), classes[:, None], 1).mean()


def parameters(shapes):
    return {name: jnp.asarray(data.parameter(name, shape)) for name, shape in shapes.items()}


def training(loss_of, update, p, state):
    """update(p, gradients, state) gives the next p and state."""

    @partial(jax.jit, donate_argnums=(0, 1))
    def advance(p, state):
        loss, gradients = jax.value_and_grad(loss_of)(p)
        return loss, *update(p, gradients, state)

    now = [p, state]

    def step():
        loss, *now[:] = advance(*now)
        return float(loss)

    return step, 1


def zeros_like(p):
    return jax.tree.map(jnp.zeros_like, p)


def sgd(rate, momentum=0.9):
    def update(p, gradients, moved):
        moved = jax.tree.map(lambda m, g: momentum * m + g, moved, gradients)
        return jax.tree.map(lambda p, m: p - rate * m, p, moved), moved

    return update


def adamw(p, gradients, state):
    count, first, second = state
    rate, (beta1, beta2), count = data.ADAMW["lr"], data.ADAMW["betas"], count + 1
    first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, first, gradients)
    second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, second, gradients)

    def moved(p, m, v):
        deviation = jnp.sqrt(v / (1 - beta2**count)) + data.ADAMW["eps"]
        return p * (1 - rate * data.ADAMW["weight_decay"]) - rate * m / (1 - beta1**count) / deviation

    return jax.tree.map(moved, p, first, second), (count, first, second)


def adamw_start(p):
    return jnp.float32(0), zeros_like(p), zeros_like(p)


def linear_shapes(name, outputs, inputs):
    return {name + ".weight": (outputs, inputs), name + ".bias": (outputs,)}


@workload
def mlp_train(_side):
    shapes = {}
    for i, (inputs, outputs) in enumerate(zip(data.MLP_WIDTHS, data.MLP_WIDTHS[1:])):
        shapes |= linear_shapes(str(2 * i), outputs, inputs)
    x, classes = jnp.asarray(data.floats("x", 64, 128)), jnp.asarray(data.indices("y", 10, 64))

    def loss_of(p):
        hidden = jax.nn.relu(linear(p, "2", jax.nn.relu(linear(p, "0", x))))
        return cross_entropy(linear(p, "4", hidden), classes)

    p = parameters(shapes)
    return training(loss_of, sgd(0.05), p, zeros_like(p))


@workload
def adamw_step(_side):
    p = [jnp.asarray(data.floats(f"parameter {i}", 64, 64)) for i in range(50)]
    gradients = [jnp.asarray(data.floats(f"gradient {i}", 64, 64)) for i in range(50)]
    update = jax.jit(adamw, donate_argnums=(0, 2))
    now = [p, adamw_start(p)]

    def step():
        now[:] = update(now[0], gradients, now[1])
        return now[0][7].copy()

    return step, 1


@workload
def dlrm_train(_side):
    shapes = linear_shapes("dense.0", 64, 13) | linear_shapes("dense.2", 16, 64)
    shapes |= {f"tables.{i}.weight": (data.ROWS, 16) for i in range(data.TABLES)}
    shapes |= linear_shapes("top.0", 64, 16 * (data.TABLES + 1)) | linear_shapes("top.2", 1, 64)
    features = jnp.asarray(data.floats("x", data.CLICKS, 13))
    bags = jnp.asarray(data.indices("bags", data.ROWS, data.TABLES, data.CLICKS, data.BAG))
    clicked = jnp.asarray(data.indices("clicked", 2, data.CLICKS).astype("float32"))

    def loss_of(p):
        dense = jax.nn.relu(linear(p, "dense.2", jax.nn.relu(linear(p, "dense.0", features))))
        sums = [p[f"tables.{i}.weight"][bags[i]].sum(1) for i in range(data.TABLES)]
        logits = linear(p, "top.2", jax.nn.relu(linear(p, "top.0", jnp.concatenate([dense, *sums], 1))))[:, 0]
        return (jax.nn.softplus(logits) - clicked * logits).mean()

    return training(loss_of, lambda p, g, none: (jax.tree.map(lambda p, g: p - 0.1 * g, p, g), none), parameters(shapes), ())


def gpt(p, ids):
    def norm(name, x):
        return layer_norm(x, p[name + ".weight"], p[name + ".bias"])

    def heads(x):
        return x.reshape(*x.shape[:2], data.HEADS, -1).transpose(0, 2, 1, 3)

    future = np.triu(np.ones((data.LENGTH, data.LENGTH), bool), 1)
    x = p["token.weight"][ids] + p["position.weight"]
    for layer in range(data.LAYERS):
        block = f"blocks.{layer}."
        q, k, v = map(heads, jnp.split(linear(p, block + "qkv", norm(block + "norm1", x)), 3, -1))
        scores = q @ k.swapaxes(2, 3) * (data.WIDTH // data.HEADS) ** -0.5
        mixed = jax.nn.softmax(jnp.where(future, -jnp.inf, scores), -1) @ v
        x = x + linear(p, block + "out", mixed.transpose(0, 2, 1, 3).reshape(x.shape))
        x = x + linear(p, block + "down", gelu(linear(p, block + "up", norm(block + "norm2", x))))
    return norm("norm", x) @ p["head.weight"].T


def text(name):
    return jnp.asarray(data.indices(name, data.VOCABULARY, data.BATCH, data.LENGTH))


@workload
def gpt_fwd(_side):
    p, ids, run = parameters(data.gpt_shapes()), text("ids"), jax.jit(gpt)
    return lambda: run(p, ids), 1


@workload
def gpt_train(_side):
    p, ids, wanted = parameters(data.gpt_shapes()), text("ids"), text("wanted").reshape(-1)
    return training(lambda p: cross_entropy(gpt(p, ids).reshape(-1, data.VOCABULARY), wanted), adamw, p, adamw_start(p))


@workload
def shapes(_side):
    p = parameters(linear_shapes("0", 128, 64) | linear_shapes("2", 64, 128))
    arrays = [data.floats(f"sequence {n}", 4, n, 64) for n in data.LENGTHS]
    energy = jax.jit(lambda x: jnp.square(jax.nn.softmax(linear(p, "2", gelu(linear(p, "0", x))), 1)).sum())
    return lambda: [float(energy(a)) for a in arrays], 1
