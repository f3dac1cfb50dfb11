"""What a function does on a device, in full: values, layouts, versions, warnings, exceptions."""

import re
import warnings

import torch


def words(text) -> str:
    """The first line, in words that don't name the device, nor the operator that we put in front."""
    line = re.sub(r"^aten::[\w.]+: ", "", str(text).strip().split("\n")[0])
    line = re.sub(r"torch\.(\w+)Tensor|PrivateUse1(\w+)Type|tpu(\w+)Type", "TENSOR", line)
    line = re.sub(r" \(Triggered internally.*|(?<=was resized) since it had shape.*", "", line)
    return re.sub(r"\b(tpu|cpu|privateuseone)(:0)?", "DEVICE", line, flags=re.IGNORECASE)


def rounded(elements):
    """Six digits of each number of nested lists."""
    if isinstance(elements, list):
        return [rounded(e) for e in elements]
    return f"{elements:.5e}" if isinstance(elements, float | complex) else elements


def described(value):
    """A tensor as its facts and its elements; containers as tuples of that."""
    if isinstance(value, torch.Tensor):
        facts = [value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), value.requires_grad, value.is_leaf]
        facts += [value.is_conj(), value.is_neg(), value._is_view(), value.is_inference() or value._version]
        return (*facts, rounded(value.detach().cpu().tolist()))
    if isinstance(value, list | tuple):
        return tuple(map(described, value))
    if isinstance(value, torch.UntypedStorage | torch.TypedStorage):
        return value.tolist()
    return words(value) if isinstance(value, str | torch.device) else value


def outcome(function, device: str):
    """What the function returns or raises, and what it warns of."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                result = described(function(device))
            except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
                result = (type(error).__name__, words(error))
    finally:
        torch.set_warn_always(before)
    return result, {words(w.message) for w in told if not re.search("TypedStorage|is in beta", str(w.message))}


def numbers(device: str, *shape: int, dtype=torch.float32) -> torch.Tensor:
    """1, 2, 3, ... on the device, a tensor of its own."""
    return torch.arange(1, 1 + torch.Size(shape).numel()).to(dtype).reshape(shape).to(device).clone()
