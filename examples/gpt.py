"""Trains a byte-level GPT on the standard library's documentation, then lets it write.

    python examples/gpt.py --device tpu
"""

import torch
import torch.nn.functional as F
from common import Stopwatch, arguments, stdlib_docstrings, write_results
from torch import nn

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, STEPS = 4, 128, 4, 64, 16, 300


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256, bias=False)
        self.apply(self._init)

    @staticmethod
    def _init(module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight
        return self.head(self.norm(self.blocks(x)))


@torch.no_grad()
def write(model, start: bytes, count: int, device: str) -> bytes:
    """Continues `start`. The window always has CONTEXT bytes, so one set of programs serves every step."""
    model.eval()
    generator = torch.Generator().manual_seed(3)
    window, written = list(start[-CONTEXT:]), bytearray()
    for _ in range(count):
        logits = model(torch.tensor([window], device=device))[0, -1]
        byte = int(torch.multinomial(F.softmax(logits.cpu() / 0.7, dim=-1), 1, generator=generator))
        written.append(byte)
        window = [*window[1:], byte]
    return bytes(written)


def main():
    args = arguments("Byte-level GPT")
    text = "\n\n".join(doc for _, doc in stdlib_docstrings(limit=4000)).encode()
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    print(f"gpt on {args.device}: {len(text):,} bytes of text, {STEPS} steps of {BATCH} x {CONTEXT} bytes")

    torch.manual_seed(0)
    model = GPT().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
    order = torch.Generator().manual_seed(1)
    losses, watch = [], Stopwatch()
    for step in range(STEPS):
        starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=order)
        batch = torch.stack([data[s : s + CONTEXT + 1] for s in starts.tolist()]).long().to(args.device)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warmup.step()
        losses.append(loss.detach())
        if step % 25 == 0 or step == STEPS - 1:
            print(f"  step {step:3d}  loss {loss.item():.4f}  {watch.lap():5.1f} s", flush=True)
    losses = torch.stack(losses).cpu().tolist()

    sample = write(model, text[: CONTEXT * 4], 200, args.device).decode(errors="replace")
    seconds = watch.total()
    print(f"  in {seconds:.1f} s; it writes:\n    " + sample.replace("\n", "\n    "))
    write_results(args.json, {"losses": losses, "sample": sample, "seconds": seconds})


if __name__ == "__main__":
    main()
