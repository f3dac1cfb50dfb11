"""Mixtures of experts in a form that a TPU's compiler takes: shapes that don't depend on what the router decides.

Tokens are looked at in groups. In each, an expert has room for as many tokens as would be its share, and a quarter more; tokens
beyond that go without it. Sending tokens to experts and back are multiplications with matrices of zeros and ones, so that XLA
can split all of it along the batch. (libtpu refuses ragged_dot, which would need no room.)
"""

import math

import torch

NAME = "torch_tpu_dispatch"
GROUP, SPARE = 512, 1.25


def _group_length(tokens: int) -> int:
    return next(n for n in range(min(GROUP, tokens), 0, -1) if tokens % n == 0)


def routing(index: torch.Tensor, weights: torch.Tensor, experts: int, room: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Matrices that send tokens to places and bring results back weighted, from ``index`` and ``weights`` of shape
    (groups, tokens, experts of a token): both (groups, tokens, experts * room)."""
    groups, tokens, chosen = index.shape
    hot = (index[..., None] == torch.arange(experts, device=index.device)).to(torch.float32)
    flat = hot.view(groups, tokens * chosen, experts)
    place = ((flat.cumsum(1) - 1) * flat).sum(-1).view(groups, tokens, chosen)  # first come, first served
    # A place beyond the room equals none of these, so such a token is left out.
    slot = (place[..., None] == torch.arange(room, device=index.device).to(torch.float32)).to(weights.dtype)
    hot = hot.to(weights.dtype).transpose(2, 3)
    send = (hot @ slot).view(groups, tokens, experts * room)
    back = (hot @ (slot * weights[..., None])).view(groups, tokens, experts * room)
    return send, back


def forward(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
    """What Transformers calls for its classes of experts: (tokens, width), and (tokens, chosen) twice -> (tokens, width)."""
    if self.has_bias or not self.has_gate or self.has_post_expert_norm:
        raise NotImplementedError(
            f"{type(self).__name__}: experts with biases, without gates or with norms have no form for a TPU yet"
        )
    tokens, width = hidden_states.shape
    length, chosen, experts = _group_length(tokens), top_k_index.shape[-1], self.num_experts
    groups = tokens // length
    room = min(length, 8 * math.ceil(length * chosen / experts * SPARE / 8))
    weights = top_k_weights.to(hidden_states.dtype).view(groups, length, chosen)
    send, back = routing(top_k_index.view(groups, length, chosen), weights, experts, room)

    up, down = self.gate_up_proj, self.down_proj
    if not self.is_transposed:
        up, down = up.transpose(1, 2), down.transpose(1, 2)
    sent = send.transpose(1, 2) @ hidden_states.view(groups, length, width)
    by_expert = sent.view(groups, experts, room, width).transpose(0, 1).reshape(experts, groups * room, width)
    made = self._apply_gate(by_expert @ up) @ down
    made = made.view(experts, groups, room, width).transpose(0, 1).reshape(groups, experts * room, width)
    return (back @ made).view(tokens, width)


def register() -> None:
    """Makes it known to Transformers, where that has such a register."""
    try:
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    except ImportError:
        return
    ALL_EXPERTS_FUNCTIONS.register(NAME, forward)
