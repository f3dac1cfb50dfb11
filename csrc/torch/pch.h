// PyTorch's headers, compiled once for all files of the glue.
#pragma once
#include <torch/csrc/utils/pybind.h>

#include <ATen/ATen.h>
#include <torch/library.h>
