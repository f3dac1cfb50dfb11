"""Architectures of `transformers` whose sizes vary: one program for all sizes up to the bound, and for a growing cache few.

What lies beyond a size is chosen when the device is opened, so this file runs as a program of its own, once with NaN there
and once with zeros: both must give the same bits. `make conformance` runs all architectures, other runs a few."""

import copy
import hashlib
import json
import os
import random
import subprocess
import sys
import time

import pytest
import torch
from torch._dynamo.utils import counters

EVERYTHING = bool(os.environ.get("TORCH_TPU_TEST_EVERYTHING"))
SIZES = {"lengths": (3, 128), "batches": (2, 31)}  # bounds of what varies
COUNT = 30 if EVERYTHING else 8  # sizes that one program serves
TOKENS = 24 if EVERYTHING else 6  # generated one by one
MOST_GENERATING = 3  # programs: the prompt's, and those of the growing cache
TOLERANCE = 1e-4  # of the largest value

WIDTHS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
          "intermediate_size": 64, "vocab_size": 99, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CAUSAL = {name: {} for name in (
    "llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 gpt2 gpt_neox bloom falcon mpt stablelm starcoder2 olmo olmo2 cohere "
    "granite biogpt persimmon helium glm smollm3 nemotron gpt_bigcode openai-gpt").split()} | {
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32}, "xglm": {"ffn_dim": 64}, "gptj": {"rotary_dim": 4}, "codegen": {"rotary_dim": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8}}
ENCODERS = {name: {} for name in (
    "bert roberta electra albert deberta camembert xlm-roberta ernie roformer megatron-bert deberta-v2 mpnet ibert modernbert layoutlm "
    "splinter data2vec-text roberta-prelayernorm esm xlm rembert").split()} | {"distilbert": {"hidden_dim": 64}}

STAGES = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]}
WINDOWS = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4}
VISION = {name: {} for name in (
    "vit deit beit dinov2 dinov2_with_registers dinov3_vit ijepa vit_msn data2vec-vision clip_vision_model siglip_vision_model dpt").split()} | {
    "swin": WINDOWS, "swinv2": WINDOWS, "pvt": STAGES, "segformer": STAGES, "poolformer": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
    "convnext": {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2}, "convnextv2": {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2},
    "resnet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"},
    "regnet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8},
    "mobilenet_v1": {"depth_multiplier": 0.25}, "mobilenet_v2": {"depth_multiplier": 0.25},
    "focalnet": {"embed_dim": 16, "depths": [1, 1], "focal_levels": [1, 1], "focal_windows": [3, 3], "patch_size": 4}}
ALL = CAUSAL | ENCODERS | VISION
NAMES = list(ALL) if EVERYTHING else ["mpt", "bert", "convnext"]


def tiny(name, values):
    from transformers import CONFIG_MAPPING, AutoConfig

    default = CONFIG_MAPPING[name]()
    names = getattr(default, "attribute_map", {})
    known = {k: v for k, v in WIDTHS.items() if (k in vars(default) or names.get(k) in vars(default)) and names.get(k) not in values}
    if name in VISION and "image_size" in vars(default):
        known["image_size"] = 32
    if name in VISION and isinstance(getattr(default, "patch_size", None), int):
        known["patch_size"] = 8
    return AutoConfig.for_model(name, **{**known, **values})


def sizes_between(least, most):
    """The bounds, and others of all remainders; not in order."""
    between = range(least + 1, most)
    picked = [least, most, *random.Random(0).sample(between, min(COUNT - 2, len(between)))]
    return random.Random(1).sample(picked, len(picked))


def tensors(output):
    return [t for t in torch.utils._pytree.tree_leaves(output.to_tuple()) if isinstance(t, torch.Tensor)]


def images(size):
    return {"pixel_values": torch.randn(size, 3, 32, 32)}


def text(size):
    ids = torch.randint(3, 99, (2, size))
    mask = torch.ones_like(ids)
    mask[1, size - size // 3:] = 0
    return {"input_ids": ids, "attention_mask": mask}


class Case:
    """One architecture, on the CPU and on the device, and what varies in its inputs: `kind`, along dimension `dim`."""

    def __init__(self, name):
        from transformers import AutoModel, AutoModelForCausalLM

        self.kind, self.dim, self.inputs = ("batches", 0, images) if name in VISION else ("lengths", 1, text)
        self.is_causal = name in CAUSAL
        config = tiny(name, ALL[name])
        self.model = (AutoModelForCausalLM if self.is_causal else AutoModel).from_config(config).eval()
        self.there = copy.deepcopy(self.model).to("tpu")

    def varied(self):
        compiled = torch.compile(self.there, backend="tpu")
        least, most = SIZES[self.kind]
        worst, digest = 0.0, hashlib.sha256()
        options = {"use_cache": False} if self.is_causal else {}
        for size in sizes_between(least, most):
            inputs = self.inputs(size)
            there = {k: v.to("tpu") for k, v in inputs.items()}
            for v in there.values():
                torch._dynamo.mark_dynamic(v, self.dim, min=least, max=most)
            for actual, expected in zip(tensors(compiled(**there, **options)), tensors(self.model(**inputs, **options)), strict=True):
                actual = actual.cpu()
                assert actual.shape == expected.shape and actual.dtype == expected.dtype
                digest.update(actual.contiguous().numpy().tobytes())
                worst = max(worst, float((actual - expected).abs().max() / expected.abs().max()))
        return {"worst": worst, "digest": digest.hexdigest()}

    def generated(self, model, device, forward):
        from transformers import DynamicCache

        cache, ids, out = DynamicCache(config=model.config), torch.tensor([[5, 7, 11, 13]], device=device), []
        for _ in range(TOKENS):
            ids = forward(input_ids=ids, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
            out.append(int(ids))
        return out

    def generation(self):
        there = self.generated(self.there, "tpu", torch.compile(self.there, backend="tpu", dynamic=True))
        return {"tokens": there, "expected": self.generated(self.model, "cpu", self.model)}


def counted(run):
    torch._dynamo.reset()
    counters.clear()
    begin = time.monotonic()
    try:
        result = run()
    except Exception as error:  # noqa: BLE001 - told by the test
        result = {"error": f"{type(error).__name__}: {error}"[:600]}
    return result | {"graphs": counters["stats"]["unique_graphs"], "seconds": round(time.monotonic() - begin, 1), **counters["tpu"]}


def run_all(names, beyond):
    for name in names:
        torch.manual_seed(0)
        case = Case(name)
        with torch.no_grad():
            print(json.dumps([name, "varied", counted(case.varied)]), flush=True)
            if case.is_causal and beyond == "poison":
                print(json.dumps([name, "generation", counted(case.generation)]), flush=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """What both runs found: results[beyond][name, what]."""
    pytest.importorskip("transformers", reason="transformers is not installed: pip install -r requirements-dev.txt")
    results = {}
    for beyond in ("poison", "zeros"):  # the second finds the first one's programs
        environment = {**os.environ, "TORCH_TPU_INTERNAL_BOUNDED_SIZES": beyond, "HF_HUB_OFFLINE": "1",
                       "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT": str(tmp_path_factory.getbasetemp() / "programs")}
        done = subprocess.run([sys.executable, __file__, beyond, *NAMES], env=environment, capture_output=True, text=True, timeout=7200)
        assert done.returncode == 0, done.stderr[-3000:]
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        results[beyond] = {(name, what): result for name, what, result in rows}
    return results


@pytest.mark.parametrize("name", NAMES)
def test_one_program_serves_all_sizes(name, finished):
    nan, zeros = (finished[beyond][name, "varied"] for beyond in ("poison", "zeros"))
    assert "error" not in nan, nan["error"]
    assert nan["worst"] < TOLERANCE
    assert nan["digest"] == zeros["digest"]
    for run in (nan, zeros):
        assert (run["graphs"], run["programs"], run.get("interpreted", 0)) == (1, 1, 0)


@pytest.mark.parametrize("name", [n for n in NAMES if n in CAUSAL])
def test_a_growing_cache_takes_few_programs(name, finished):
    run = finished["poison"][name, "generation"]
    assert "error" not in run, run["error"]
    assert run["tokens"] == run["expected"]
    assert run["programs"] <= MOST_GENERATING


if __name__ == "__main__":
    run_all(sys.argv[2:], sys.argv[1])
