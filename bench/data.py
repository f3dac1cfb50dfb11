"""The numbers that all backends start from: each depends on its name and shape only."""

import numpy as np


def _draw(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def floats(name: str, *shape: int) -> np.ndarray:
    return _draw(name).standard_normal(shape, dtype=np.float32)


def positive(name: str, *shape: int) -> np.ndarray:
    return _draw(name).random(shape, dtype=np.float32) + np.float32(0.5)


def indices(name: str, below: int, *shape: int) -> np.ndarray:
    return _draw(name).integers(0, below, shape)


def ramp(count: int) -> np.ndarray:
    """What bench/floor.c starts from too."""
    return np.arange(count, dtype=np.float32) / np.float32(8)


def parameter(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Biases 0, scales 1, matrices and kernels normal with the deviation 1/sqrt(inputs)."""
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    return floats(name, *shape) * np.float32(np.prod(shape[1:]) ** -0.5)


# ---- sizes that torch and JAX share ---------------------------------------------------------------------------

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 512, 128, 4, 4, 64, 4
MLP_WIDTHS = (128, 256, 256, 10)
ROWS, TABLES, BAG, CLICKS = 10000, 4, 8, 128  # DLRM: rows of a table, tables, indices in a bag, batch
LENGTHS = range(20, 220, 4)
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
CHAIN = 25  # times four operators


def gpt_shapes() -> dict[str, tuple[int, ...]]:
    shapes = {"token.weight": (VOCABULARY, WIDTH), "position.weight": (LENGTH, WIDTH)}
    linears = {"qkv": (3 * WIDTH, WIDTH), "out": (WIDTH, WIDTH), "up": (4 * WIDTH, WIDTH), "down": (WIDTH, 4 * WIDTH)}
    for layer in range(LAYERS):
        for name, shape in (linears | {"norm1": (WIDTH,), "norm2": (WIDTH,)}).items():
            shapes[f"blocks.{layer}.{name}.weight"] = shape
            shapes[f"blocks.{layer}.{name}.bias"] = shape[:1]
    return shapes | {"norm.weight": (WIDTH,), "norm.bias": (WIDTH,), "head.weight": (VOCABULARY, WIDTH)}
