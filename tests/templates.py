"""Lines of random programs (programs.py), with holes.

{a} {b} {c}: any tensor. {f}: floating or complex. {r}: real floating. {n}: no bool. {i}: integers. {l}: int64. {m}: bool.
{like}: same shape as the first tensor. {dim}: a dimension of the first tensor. {at}: an index into it. {to}: a size.
{order}: its dimensions in some order. {k}: a small number. {s}: a number. {new}: a new name.
"""

VIEWS = """
{a}.transpose({dim}, {dim})
{a}.select({dim}, {at})
{a}.narrow({dim}, {at}, {to})
{a}[{at}:]
{a}[..., ::2]
{a}[..., {at}:{to}]
{a}[{at}]
{a}[..., {at}]
{a}[:, None]
{a}.unsqueeze({dim})
{a}.squeeze()
{a}.squeeze({dim})
{a}.expand({to}, *{a}.shape)
{a}.unsqueeze(0).expand(2, *{a}.shape)
{a}.expand_as({like})
{a}.diagonal()
{a}.diagonal({k}, 0, 1)
{a}.unfold({dim}, {to}, 1)
{a}.as_strided({strided})
{a}.view(-1)
{a}.view(*{a}.shape[::-1])
{a}.view({a}.shape)
{a}.reshape(-1)
{a}.reshape(*{a}.shape[::-1])
{a}.flatten()
{a}.unflatten({dim}, (-1, {to}))
{a}.movedim({dim}, {dim})
{a}.permute({order})
{a}.permute({order})
{a}.mT
{a}.mH
{a}.detach()
{a}.data
{a}.chunk(2, {dim})[-1]
{a}.split({to}, {dim})[0]
{a}.unbind({dim})[{at}]
{a}.tensor_split(2)[1]
{a}.view_as({like})
torch.view_as_real({a})
{a}.real
{a}.imag
{a}.conj()
torch._neg_view({n})
{a}.swapaxes({dim}, {dim})
{a}.hsplit(1)[0]
torch.broadcast_tensors({a}, {b})[0]
torch.atleast_2d({a})
torch.ops.aten.alias({a})
"""

# New tensors, exactly.
PURE = """
{a}.clone()
{a}.contiguous()
{a}.to(torch.{dtype})
{a}.to(torch.{dtype}, copy=True)
{a}.clone(memory_format=torch.preserve_format)
{a}.clone(memory_format=torch.contiguous_format)
{a}.flip({dim})
{a}.roll({k}, {dim})
{a}.repeat(2, *[1] * {a}.dim())
{a}.tile(2)
{a}.rot90()
{a}.tril({k})
{a}.triu({k})
{a}.index_select({dim}, {index})
{a}.gather({dim}, {indices})
{a}.take({places})
{a}[{index}]
{a}[..., {index}]
{a}[{index}, {index}]
{a}.take_along_dim({indices}, {dim})
{a}.masked_select({mask})
{a}[{mask}]
{a}.repeat_interleave(2, {dim})
torch.cat([{a}, {b}], {dim})
torch.stack([{a}, {like}], {dim})
torch.where({mask}, {a}, {like})
torch.where({mask}, {a}, {s})
{a}.masked_fill({mask}, {s})
{a}.index_fill({dim}, {index}, {s})
{a}.index_copy({dim}, {index}, {a})
{a}.scatter({dim}, {indices}, {s})
{a}.clone().select_scatter({a}.select({dim}, {at}), {dim}, {at})
{a}.clone().slice_scatter({b}, {dim}, {at})
{a}.clone().diagonal_scatter({a}.diagonal())
{n}.permute({order})[{at}] + {k}
{n} + {b}
{n} - {b}
{n} + {s}
{s} - {n}
{n} * {s}
({n} * {b}).clamp(-8, 8)
torch.add({n}, {like}, alpha={k})
-{n}
{n}.abs()
{n}.square().clamp(-8, 8)
{a} * 2 + {a}
({a} + {b}) * ({a} - {s})
torch.zeros_like({a})
torch.ones_like({a})
torch.full_like({a}, {s})
{a}.new_zeros({a}.shape)
{a}.new_full(({to},), {s})
torch.arange({to}, device=dev)
torch.eye({to}, device=dev)
torch.full(({to}, {at}), {s}, device=dev)
torch.tensor([1, {k}], device=dev)
torch.tensor({a}.tolist(), dtype={a}.dtype, device=dev)
{a}.numpy(force=True).tolist() and {a}.clone()
{n} + {a}.flatten()[0].item()
torch.nn.functional.pad({a}, (1, {to}))
torch.nn.functional.one_hot({l}.remainder(5), 5)
torch.repeat_interleave({a}.flatten())
torch._foreach_add([{n}, {like}], {k})[1]
torch.func.functional_call(torch.nn.Identity(), {{}}, ({a},))
torch.func.vmap(lambda t: t + t)({a})
torch.utils.checkpoint.checkpoint(lambda t: t * 2, {a}, use_reentrant=False)
"""

# New tensors that jump: not of what is rounded.
SHARP = """
{a}.view(torch.{dtype})
{a}.view(torch.{dtype})
{a} == {b}
{a} != {s}
{n} < {b}
{n} >= {s}
{a}.logical_not()
{a}.logical_and({b})
{a}.bool()
{a}.any({dim})
{a}.all()
{n}.maximum({b})
{n}.minimum({b})
{n}.clamp(-2, 2)
{n}.clamp({like}, None)
{n}.relu()
{n}.sign()
{n}.amax({dim})
{n}.amin({dim}, keepdim=True)
{n}.max()
{n}.max({dim})[0]
{n}.max({dim})[1]
{n}.argmin()
{n}.argmax({dim})
{n}.sort({dim}, stable=True)[0]
{n}.sort({dim}, descending=True, stable=True)[1]
{n}.topk(1, {dim})[0]
{n}.cummax({dim})[0]
{n}.unique()
{n}.floor_divide({b}.clamp(1, 5))
{n}.remainder(3)
{n}.fmod({b}.clamp(1, 5))
{r}.floor()
{r}.round()
{r}.trunc()
{a}.nonzero()
{a}.count_nonzero({dim})
torch.isin({a}, {b})
torch.isfinite({a})
{i} & {i}
{i} ^ {k}
{i} << 1
{i} >> {k}
~{i}
{m} | {m}
{n}.abs().to(torch.{dtype})
torch.searchsorted(torch.arange(5, device=dev), {i})
torch.bincount({l}.flatten().abs().clamp(max=6))
{n}.heaviside({like})
torch.histc({r}, 4, -4, 4)
torch.bucketize({n}, torch.arange(5, device=dev))
"""

# New tensors that are exact if nothing is large.
SUMS = """
{a}.sum()
{a}.sum({dim})
{a}.sum({dim}, keepdim=True, dtype=torch.float32)
{a}.cumsum({dim})
{n}.trace()
{n} @ {b}
{n}.outer({b}).clamp(-8, 8)
{n}.dot({b})
torch.matmul({n}, {n}.mT)
torch.einsum('...i,...i->...', {n}, {n})
torch.addmm({n}, {b}, {c})
torch.nn.functional.linear({n}, {b})
torch.nn.functional.avg_pool1d({r}, 1) if {r}.dim() > 1 else {r} + 0
{r}.nansum()
{n}.scatter_add({dim}, {indices}, {like})
{n}.index_add({dim}, {index}, {n})
{n}.scatter_reduce({dim}, {indices}, {like}, 'sum')
{n}.index_put(({index},), {n}, accumulate=True)
torch.tensordot({n}, {b}, 1)
"""

# New tensors that are rounded.
SMOOTH = """
{n}.mean()
{r}.mean({dim})
{n} / {s}
{n} / ({b} * {b} + 1)
{n}.sigmoid()
{n}.tanh()
{r}.softmax({dim})
{r}.log_softmax({dim})
{r}.clamp(-8, 8).exp()
{r}.abs().add(1).log()
{r}.abs().add(1).sqrt()
torch.nn.functional.gelu({r})
torch.nn.functional.layer_norm({r}, {r}.shape[-1:])
{r}.logsumexp({dim})
{f}.abs().add(1).reciprocal()
{r}.lerp({like}, 0.25)
torch.addcmul({n}, {like}, {like}, value=0.5).tanh()
{r}.var({dim})
{r}.cumprod({dim}).clamp(-8, 8)
"""

WRITES = """
{a}.fill_({s})
{a}.zero_()
{n}.add_({k})
{n}.add_({b})
{n}.sub_({b}, alpha=2)
{n}.mul_({two})
{n}.neg_()
{n}[..., 1:].permute({order}).add_(torch.arange({n}[..., 1:].numel(), device=dev).reshape({n}[..., 1:].permute({order}).shape))
{a}.permute({order})[{at}].copy_({b})
{a}.copy_({b})
{a}.copy_({a}.flip(0))
{a}[{at}] = {s}
{a}[{at}:] = {b}
{a}[..., ::2] = {s}
{a}[{index}] = {s}
{a}[{mask}] = {s}
{a}[{mask}] = {b}
{a}[{index}, {index}] = {b}
{a}[..., {at}] += {k}
{a}.masked_fill_({mask}, {s})
{a}.masked_scatter_({mask}, {like}.clone())
{a}.index_fill_({dim}, {index}, {s})
{a}.index_copy_({dim}, {at}, {b})
{a}.scatter_({dim}, {indices}, {s})
{a}.scatter_({dim}, {indices}, {like})
{a}.t_()
{a}.transpose_({dim}, {dim})
{a}.squeeze_()
{a}.unsqueeze_({dim})
{a}.as_strided_({strided})
{a}.swapaxes_({dim}, {dim})
{a}.detach_()
{a}.requires_grad_()
{a}.resize_({a}.numel() // 2)
{a}.set_({b})
{a}.data = {b}
{a}.data.add_({k})
{a}.detach().mul_({two})
{a}.fill_diagonal_({s})
{a}.put_({places}, {s} * torch.ones_like({places}, dtype={a}.dtype))
{a}.tril_()
{a}.conj_physical_()
{a} = {b}
{a} += {k}
{n} -= {b}
{i} &= {k}
{i} |= {i}
torch.add({n}, {b}, out={c})
torch.mul({n}, {two}, out={a})
torch.neg({n}, out={b})
torch.cat([{a}, {b}], out={c})
torch.index_select({a}, {dim}, {index}, out={b})
torch._foreach_add_([{n}, {b}], {k})
torch._foreach_mul_([{n}, {b}], {two})
torch._foreach_copy_([{a}, {like}], [{like}, {a}])
torch._foreach_zero_([{a}, {b}])
for _ in range(3): {n}.add_({b}).sub_({k})
for _ in range(4): {n} = {n} + {k}
with torch.no_grad(): {n}.add_({k})
with torch.no_grad(): {new} = {a}.view(-1); {new}.fill_({s})
with torch.inference_mode(): {new} = {a} + {a}
with torch.inference_mode(): {new} = {a}[{at}:]
with torch.inference_mode(): {a}.fill_({s})
{new}, {new} = {a}.chunk(2)
{new}, {new} = torch.unbind({a})
{new}, {new} = {n}.max({dim})
{a}.data, {b}.data = {b}.data, {a}.data
torch.utils.swap_tensors({a}, {b})
del {a}
del {a}
"""

# Writes that jump, and writes of sums.
SHARP_WRITES = """
{a}.set_({b}.untyped_storage(), 0, ({b}.untyped_storage().nbytes() // {a}.element_size(),), (1,))
{a}.untyped_storage().copy_({b}.untyped_storage())
{n}.clamp_(-2, 2)
{n}.relu_()
{r}.abs_()
{n}.remainder_(3)
{n}.floor_divide_(2)
{n}.mul_({b}).clamp_(-8, 8)
{a}.logical_not_()
{n}.lt_({b})
{a}.eq_({b})
{a}[{a} == {s}] = {k}
{a}.masked_fill_({a} != 0, {s})
torch.sort({n}, {dim}, stable=True, out=({b}, {l}))
torch.gt({n}, {k}, out={m})
torch.maximum({n}, {b}, out={c})
torch.amax({r}, {dim}, out={b})
"""
SUM_WRITES = """
{n}.scatter_add_({dim}, {indices}, {like})
{n}.index_add_({dim}, {index}, {b})
{n}.index_put_(({index},), {b}, accumulate=True)
{n}.cumsum_({dim})
{n}.addmm_({b}.clone(), {c}.clone())
torch.sum({n}, {dim}, out={b})
torch.mm({n}, {b}, out={c})
{n}.put_({places}, torch.ones_like({places}, dtype={n}.dtype), accumulate=True)
{n}.scatter_reduce_({dim}, {indices}, {like}, 'sum')
"""
SMOOTH_WRITES = """
{r}.sigmoid_()
{r}.div_(3)
{r}.tanh_()
torch.mean({r}, {dim}, out={b})
{r}.lerp_({like}, 0.5)
"""


def lines_of(text, **kind):
    return [(line, kind) for line in text.strip().splitlines()]


GROUPS = [
    lines_of(VIEWS, makes=True),
    lines_of(VIEWS, makes=True),  # twice as likely as others
    lines_of(PURE, makes=True),
    lines_of(SHARP, makes=True, sharp=True),
    lines_of(SUMS, makes=True, sums=True),
    lines_of(SMOOTH, makes=True, smooth=True),
    lines_of(WRITES),
    lines_of(WRITES),
    lines_of(SHARP_WRITES, sharp=True),
    lines_of(SUM_WRITES, sums=True),
    lines_of(SMOOTH_WRITES, smooth=True),
]
