"""Where the device's answers are not the CPU's, or a TPU's compiler refuses a program: what and why. Nothing else may differ."""

import re

DROPOUT = "the samples drop elements at random"

# Rows of PyTorch's operator database: a pattern for "operator dtype direction", and why.
ROWS = {
    r"nn_functional_(scaled_dot_product_attention|multi_head_attention_forward) ": DROPOUT,
}

# Programs of `aot programs`: a pattern for "operator.dtype.sample", and why.
PROGRAMS = {}


def _find(table, text):
    return next((why for pattern, why in table.items() if re.match(pattern, text)), "")


def reason_of(line):
    """Why a row (operator_database.py) differs. Empty: it should not."""
    return _find(ROWS, f"{line['op']} {line['dtype']} {line['direction']}")


def refusal_of(program):
    return _find(PROGRAMS, program)


def unused(lines):
    """Patterns for rows of which none differs: they are to be taken out."""
    wrong = [f"{line['op']} {line['dtype']} {line['direction']}" for line in lines if line["right"] < line["samples"]]
    return [pattern for pattern in ROWS if not any(re.match(pattern, row) for row in wrong)]
