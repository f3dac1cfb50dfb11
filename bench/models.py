"""The models in PyTorch. Plain code: no backend is given another model than the rest."""

import torch
from data import HEADS, LAYERS, LENGTH, MLP_WIDTHS, ROWS, TABLES, VOCABULARY, WIDTH, parameter
from torch import nn
from torch.nn import functional as F


def initialised(model: nn.Module, device: str) -> nn.Module:
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(parameter(name, tuple(p.shape))))
    return model.to(device)


def mlp() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in zip(MLP_WIDTHS, MLP_WIDTHS[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        scores = (q @ k.transpose(2, 3)) * (width // HEADS) ** -0.5
        mixed = scores.masked_fill(future, -torch.inf).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), future)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Attention is spelled out, because not every backend has scaled_dot_product_attention."""

    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("future", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))
        self.register_buffer("places", torch.arange(LENGTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.token(ids) + self.position(self.places)
        for block in self.blocks:
            x = block(x, self.future)
        return self.head(self.norm(x))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


def resnet() -> nn.Module:
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    blocks = [Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2), Residual(64, 64, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class DLRM(nn.Module):
    """Dense features through one MLP, sparse ones through embedding bags, both into another MLP."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, 16, mode="sum") for _ in range(TABLES))
        self.top = nn.Sequential(nn.Linear(16 * (TABLES + 1), 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, features: torch.Tensor, bags: torch.Tensor) -> torch.Tensor:
        parts = [self.dense(features), *(table(bag) for table, bag in zip(self.tables, bags))]
        return self.top(torch.cat(parts, 1)).squeeze(1)


def sequence_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
