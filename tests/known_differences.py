"""Where the device's answers are not the CPU's, or a TPU's compiler refuses a program: what and why. Nothing else may differ."""

import re

DROPOUT = "the samples drop elements at random"
COMPLEX_HALF = "StableHLO has no complex numbers of half precision: complex32 tensors are refused"
LAYOUT = "a sparse layout: runs on the CPU"

# Rows of PyTorch's operator database: a pattern for "operator dtype direction", and why.
ROWS = {
    r"nn_functional_(scaled_dot_product_attention|multi_head_attention_forward) ": DROPOUT,
    r"chalf ": COMPLEX_HALF,
    r"(complex|view_as_complex) float16 ": COMPLEX_HALF,
    r"sparse_(mm_reduce|sampled_addmm) ": LAYOUT,
    r"to_sparse \w+ backward": LAYOUT,
    r"(native_layer_norm|native_batch_norm|_native_batch_norm_legit|_batch_norm_with_update) (bfloat16|float16) ":
        "saved statistics are float32, as PyTorch's references have them for every device but the CPU",
    r"as_strided_partial_views ": "the samples read memory around a view, and moving a tensor moves only the view",
    r"(arg)?sort (bool|bfloat16|float16) ": "not stable: which of equal elements comes first is open",
    r"mode (int64|int32|bool|bfloat16|float16) ": "the place of a value that comes often: which of its places is told is open",
    r"logcumsumexp complex64 ": "imaginary parts are angles: the order of the additions decides which of those 2 pi apart is told",
    r"special_bessel_(j0|y1) float64": "the CPU is off by some 1e-7 beyond 5 (J0(5.4215280659972755) is -0.03378131278826056); the device isn't",
    r"erfinv float32 backward": "exp(y^2) makes of erfinv's last bits some 1e-4 near 1",
}

# The same where operators take the forms that a TPU would get.
TPU_FORMS = {
    r"linalg_eig(vals)? ": "eigenvalues of matrices that are not Hermitian need LAPACK, which there is on CPU plugins",
    r"(topk|kthvalue) ": "which of equal elements is told is open; on CPU plugins it is the CPU's choice",
}

# The same where torch.compile runs them.
COMPILED = {r"tensor_split ": "PyTorch traces it with fake tensors, which have indices to read on the CPU only"}

# Programs of `aot programs`: a pattern for "operator.dtype.sample", and why.
PROGRAMS = {
    r"(mode|scatter|topk|(max|min)\.reduction_with_dim)\.float64\.": "libtpu fails at the fusion that it makes of a scatter of float64",
}


def _find(table, text):
    return next((why for pattern, why in table.items() if re.match(pattern, text)), "")


def reason_of(line):
    """Why a row (operator_database.py) differs. Empty: it should not."""
    row = f"{line['op']} {line['dtype']} {line['direction']}"
    return _find({"tpu": TPU_FORMS, "compile": COMPILED}.get(line["mode"], {}), row) or _find(ROWS, row)


def refusal_of(program):
    return _find(PROGRAMS, program)


def unused(lines):
    """Patterns for rows that are there, of which none differs: they are to be taken out."""
    wrong = {f"{line['op']} {line['dtype']} {line['direction']}": line["right"] < line["samples"] for line in lines}
    rows = {pattern: [wrong[row] for row in wrong if re.match(pattern, row)] for pattern in ROWS}
    return [pattern for pattern, found in rows.items() if found and not any(found)]
