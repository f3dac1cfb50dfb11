"""Trains a convolutional network on scikit-learn's handwritten digits.

    python examples/digits.py --device tpu
"""

import torch
import torch.nn.functional as F
from common import Stopwatch, arguments, write_results
from sklearn.datasets import load_digits
from torch import nn

EPOCHS, BATCH, TRAIN = 12, 64, 1437


def network() -> nn.Module:
    def stage(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *stage(1, 32), *stage(32, 64), nn.MaxPool2d(2), *stage(64, 64), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10)
    )  # fmt: skip


def main():
    args = arguments("Handwritten digits")
    digits = load_digits()
    torch.manual_seed(0)
    order = torch.randperm(len(digits.target))
    images = torch.tensor(digits.images, dtype=torch.float32)[order].unsqueeze(1) / 16
    labels = torch.tensor(digits.target)[order]
    print(f"digits on {args.device}: {TRAIN} images to learn from, {len(labels) - TRAIN} to be tested with")

    model = network().to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    shuffle = torch.Generator().manual_seed(1)
    losses, watch = [], Stopwatch()
    for epoch in range(EPOCHS):
        # Full batches only: a last short one would be another shape to compile for.
        for batch in torch.randperm(TRAIN, generator=shuffle)[: TRAIN // BATCH * BATCH].split(BATCH):
            loss = F.cross_entropy(model(images[batch].to(args.device)), labels[batch].to(args.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"  epoch {epoch:2d}  loss {losses[-1].item():.4f}  {watch.lap():5.1f} s", flush=True)

    model.eval()
    with torch.no_grad():
        answers = model(images[TRAIN:].to(args.device)).argmax(dim=1)
    accuracy = (answers.cpu() == labels[TRAIN:]).float().mean().item()
    seconds = watch.total()
    print(f"  accuracy {accuracy:.4f} in {seconds:.1f} s")
    write_results(
        args.json, {"losses": torch.stack(losses).cpu().tolist(), "accuracy": accuracy, "seconds": seconds}
    )


if __name__ == "__main__":
    main()
