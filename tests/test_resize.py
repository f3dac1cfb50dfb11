"""Resizing of images: bytes, whose arithmetic PyTorch does in integers, and antialiasing."""

import itertools

import pytest
import torch
from conftest import DEVICE, assert_same

SIZES = [(4, 5), (13, 20), (7, 20)]


@pytest.mark.parametrize("mode, antialias", list(itertools.product(("bilinear", "bicubic"), (False, True))))
def test_bytes_are_equal_to_the_bit(mode, antialias):
    for (size, aligned), layout in zip(itertools.product(SIZES, (False, True)), itertools.cycle((1, 0))):
        x = torch.randint(256, (2, 3, 7, 9), dtype=torch.uint8)
        x = x.contiguous(memory_format=torch.channels_last if layout else torch.contiguous_format)

        def resize(x, size=size, aligned=aligned):
            return torch.nn.functional.interpolate(x, size, mode=mode, align_corners=aligned, antialias=antialias)

        expected, actual = resize(x), resize(x.to(DEVICE))
        assert_same(actual, expected, rtol=0, atol=0)
        assert actual.stride() == expected.stride()


def test_lanczos():
    for size, dtype, aligned in itertools.product(SIZES, (torch.uint8, torch.float32), (False, True)):
        x = torch.randint(256, (2, 3, 7, 9), dtype=torch.uint8).to(dtype)
        expected, actual = (torch.ops.aten._upsample_lanczos2d_aa(y, size, aligned) for y in (x, x.to(DEVICE)))
        tolerance = 0 if dtype == torch.uint8 else 1e-4
        assert_same(actual, expected, rtol=tolerance, atol=tolerance)
