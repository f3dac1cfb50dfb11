"""Training steps of large models on TPUs that aren't there: do they fit, and what does the report say. ``make aot-large`` runs all of
it, which takes most of an hour on two cores; the usual run compiles models of the same form with two narrow layers.

What a device must hold at the least follows from the configuration alone, so figures are compared with that.
"""

import importlib.util
import json
import os
import re

import pytest
from conftest import run_python

EVERYTHING = os.environ.get("TORCH_TPU_TEST_LARGE") == "1"
pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("libtpu", "transformers"))), reason="needs libtpu and transformers"
)
large = pytest.mark.skipif(not EVERYTHING, reason="takes minutes: make aot-large")
GIB = 2**30

# As published with the models (config.json); Llama 3 has no tied weights, and no scaling of its rotary embedding.
LLAMA3_8B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    "tie_word_embeddings": False,
}
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    "tie_word_embeddings": False,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "output_router_logits": False,
}
SMALL = {"vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2}  # fmt: skip
SMALL_EXPERTS = {**SMALL, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}

STEP = """
import json, sys, time
import transformers
from torch_tpu import aot
from torch_tpu.aot._cli import transformers_model

config, topology, length, timeout = json.loads(sys.argv[1])
with aot.Compiler(topology) as compiler:
    devices = compiler.topology.devices
model, args, kwargs = transformers_model(config, devices, length, "bfloat16")
parameters = sum(p.numel() for p in model.parameters())
begin = time.monotonic()
report = aot.compile(
    model, args, kwargs, topology=topology, mode="train_step", sharding="fsdp", recompute=True, timeout=timeout
)
print(report, file=sys.stderr)
print(f"took {time.monotonic() - begin:.0f} s, {time.process_time():.0f} s of it the capture's processor time", file=sys.stderr)
print(json.dumps({"parameters": parameters, "page": report.to_html(), **json.loads(report.to_json())}))
"""


def step(config, topology, length=2048, timeout=3600):
    """The report of a training step (AdamW, bfloat16, one sequence for each device), as JSON; its table is printed."""
    done = run_python(f"import sys\nsys.argv[1:] = {[json.dumps([config, topology, length, timeout])]!r}\n" + STEP, timeout=timeout + 300)
    print(f"\n{done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def check_step(config, topology, devices, most, **options):
    """Fits into ``most`` bytes of a device, holds its share of parameters and AdamW's two states, and is a split program."""
    r = step(config, topology, **options)
    assert r["verdict"] == "fits" and r["topology"]["devices"] == devices, r["message"]
    kept = r["bytes_by_role"]["parameter"] + r["bytes_by_role"]["optimizer"]
    assert kept == pytest.approx(3 * 2 * r["parameters"] / devices, rel=0.01)
    compiler, limit = r["compiler"], r["topology"]["memory_bytes"]
    assert kept < r["peak_bytes"] < most <= limit
    # The step works in place, so the peak is what it is given, and its temporary arrays.
    assert compiler["argument_bytes"] == pytest.approx(kept, rel=0.02) and compiler["alias_bytes"] >= kept
    assert r["peak_bytes"] >= compiler["argument_bytes"] + compiler["temp_bytes"]
    assert max(r["peak_by_phase"].values()) <= r["peak_bytes"] and set(r["peak_by_phase"]) == {"forward", "backward", "optimizer"}
    # Multiplications with each parameter but the embedding: 2 flops a token in forward, 2 again and 4 in backward; attention comes
    # on top, and of experts each token uses a part.
    tokens, multiplied = options.get("length", 2048), r["parameters"] - config["vocab_size"] * config["hidden_size"]
    if "num_experts" not in config:
        assert 7.5 <= compiler["flops"] / tokens / multiplied <= 9.5
    # Each device gathers what it doesn't have, for forward and again for backward, and sends gradients.
    sent = {c["kind"]: c["sent"] for c in r["collectives"]}
    share = 2 * r["parameters"] * (devices - 1) / devices
    assert sent["all-gather"] >= 1.5 * share and sent.get("reduce-scatter", 0) + sent.get("all-reduce", 0) >= 0.9 * share
    assert r["roofline"]["overlapped"] > 0 and r["roofline"]["intensity"] == pytest.approx(compiler["flops"] / compiler["bytes_accessed"])
    names = [b["name"] for b in r["largest"]]
    assert any(re.search(r"embed_tokens|lm_head|experts|forward |backward ", n) for n in names), names
    assert r["page"].count("<svg") == 2
    return r


@pytest.mark.parametrize("config", [{**LLAMA3_8B, **SMALL}, {**QWEN3_30B_A3B, **SMALL_EXPERTS}], ids=["llama", "qwen3_moe"])
def test_two_narrow_layers(config):
    check_step(config, "v6e:2x2", 4, GIB, length=256)


@large
@pytest.mark.parametrize(
    "topology, devices, most", [("v6e:2x4", 8, 20 * GIB), ("tpu7x:2x2x1", 8, 22 * GIB), ("v6e:16x16", 256, 14 * GIB)]
)
def test_llama3_8b(topology, devices, most):
    r = check_step(LLAMA3_8B, topology, devices, most)
    assert r["parameters"] == 8_030_261_248


@large
@pytest.mark.parametrize("topology, devices, most", [("v6e:2x4", 8, 31.2 * GIB), ("tpu7x:2x2x1", 8, 48 * GIB)])
def test_qwen3_30b_a3b(topology, devices, most):
    r = check_step(QWEN3_30B_A3B, topology, devices, most)
    assert r["parameters"] == 30_532_122_624


@large
def test_llama3_8b_is_too_large_for_one_device():
    r = step(LLAMA3_8B, "v6e:1x1")
    assert r["verdict"] == "too large" and r["peak_bytes"] > 1.4 * r["topology"]["memory_bytes"]
    assert any("no batch fits" in a for a in r["advice"]) and any(a.startswith("2 devices") for a in r["advice"]), r["advice"]
