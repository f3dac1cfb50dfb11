"""`out=` over PyTorch's operator database: tensors of other dtypes, sizes and strides are written, resized or refused as on the CPU."""

import re

import pytest
import torch
from database import difference, layout, named, outcome, part, telling, twins
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map_only

pytestmark = [pytest.mark.usefixtures("native"), pytest.mark.filterwarnings("ignore")]

RANDOM = re.compile(r"rand|bernoulli|multinomial|normal|empty|_lowrank")
WIDER = {torch.float32: torch.float64, torch.float64: torch.complex128, torch.complex64: torch.complex128, torch.int32: torch.int64,
         torch.int64: torch.float32, torch.bool: torch.float32}  # fmt: skip
NARROWER = {torch.float32: torch.float16, torch.float64: torch.float32, torch.complex64: torch.float32, torch.int32: torch.int16,
            torch.int64: torch.int32, torch.bool: torch.uint8}  # fmt: skip
# What is given for a result.
GIVEN = {
    "as it is": torch.empty_like,
    "wider": lambda t: torch.empty_like(t, dtype=WIDER.get(t.dtype)),
    "narrower": lambda t: torch.empty_like(t, dtype=NARROWER.get(t.dtype)),
    "nothing": lambda t: torch.empty(0, dtype=t.dtype),
    "too many": lambda t: torch.zeros(2, 3, 4, 5, dtype=t.dtype),
    "gaps": lambda t: torch.zeros((*t.shape, 2), dtype=t.dtype)[..., 1],
    "swapped": lambda t: torch.empty_like(t.mT, memory_format=torch.contiguous_format).mT if t.dim() > 1 else torch.empty_like(t),
}
PYTORCH = "the CPU's kernel is wrong there: it takes no notice of strides, or reads other numbers as bytes"
OTHER = "which of several that are as right is the CPU's matter"
NO_ROW = "the device has no such operator; with the CPU's fallback it runs there"
# Not compared, with the reason.
LEFT_OUT = {
    "nn_functional_gelu": PYTORCH, "nn_functional_avg_pool3d": PYTORCH, "all": PYTORCH, "mode": OTHER,
    "nn_functional_linear": "the CPU's gives int64 results a new layout",
    "_native_batch_norm_legit": "statistics that nobody needs have no elements on the CPU alone", "sparse_sampled_addmm": NO_ROW,
    "narrow_copy": "the device converts, where the CPU does not", "fft_ifft": "in the layout that the CPU's library prefers",
    "fft_ihfft": "in the layout that the CPU's library prefers",
}  # fmt: skip
# The CPU's are by columns, as LAPACK wants them, where they had no room yet: in some of these always, in some if there was none at all.
BY_COLUMNS = re.compile(r"linalg|cholesky_inverse|geqrf|lu_solve|ormqr|triangular_solve")
ROWS = [op for op in op_db if op.supports_out and not RANDOM.search(op.formatted_name) and op.formatted_name not in LEFT_OUT]


def written(op, sample, out, device):
    """What is in the tensors given for the results, or the refusal."""
    args, kwargs, out = twins(((sample.input, *sample.args), sample.kwargs, out), device)
    answer = outcome(op, *args, **kwargs, out=out)
    return answer if isinstance(answer, Exception) else out


def refusals_differ(actual, expected):
    if isinstance(actual, Exception) != isinstance(expected, Exception):
        return f"{actual!r}, not {expected!r}".replace("\n", " ")
    return None


@pytest.mark.parametrize("op", named(part(ROWS, 12)))
def test_out(op):
    for dtype in {torch.float32, torch.int64} & op.supported_dtypes("cpu"):
        samples = list(op.sample_inputs("cpu", dtype))
        for sample in [samples[0], samples[-1]]:
            results = outcome(op, sample.input, *sample.args, **sample.kwargs)
            if isinstance(results, Exception):
                continue
            for kind, given in GIVEN.items():
                out = tree_map_only(torch.Tensor, given, results)
                out = tuple(out) if isinstance(out, tuple | list) else out
                expected, actual = written(op, sample, out, "cpu"), written(op, sample, out, "tpu")
                where = f"{dtype} {kind}: "
                near = 2e-3 if kind == "narrower" else 5e-5
                if found := refusals_differ(actual, expected) or difference(actual, expected, rtol=near, atol=near):
                    pytest.fail(where + found)
                if BY_COLUMNS.match(op.formatted_name) and kind in ("nothing", "too many"):
                    continue
                if not isinstance(expected, Exception) and telling(layout(actual)) != telling(layout(expected)):
                    pytest.fail(where + f"{layout(actual)}, not {layout(expected)}")
