#!/usr/bin/python3
"""Compares the trainer with a plain PyTorch implementation, written here, in double precision.

    reference.py --dump train_dump --case llama            fp32: every tensor within 1e-4
    reference.py --dump train_dump --case llama --bf16     bf16: every tensor within 4e-2
    reference.py --dump train_dump --case llama --mutants  wrong references must be told apart
    reference.py --dump train_dump --golden DIRECTORY      rewrites the golden files

The distance of a tensor is |ours - reference| / |reference| in 2-norms. Exit status: 0 equal,
1 different, 77 PyTorch is missing (Debian: python3-torch python3-numpy).
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-torch and python3-numpy to compare with PyTorch")
    sys.exit(77)

MUTANTS = ["no rope", "rope of neighbours", "no mask", "mask shifted", "no residual scale",
           "no score scale", "wrong head groups", "no gelu tanh", "tied use dropped", "eps dropped"]
F32_LIMIT = 1e-4
# bf16 operands carry 8 bits: 2^-9 per product input, over some ten products in a chain.
BF16_LIMIT = 4e-2


def rotate(x, theta, mutant):
    """Rotary positions; x: [sequences, heads, seq, head_dim], pairs (i, i + half)."""
    if mutant == "no rope":
        return x
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * frequency
    cosine, sine = angle.cos(), angle.sin()
    if mutant == "rope of neighbours":
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cosine - b * sine, b * cosine + a * sine), -1).flatten(-2)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


def attend(q, k, v, mutant):
    """Causal attention; q: [sequences, heads, seq, d], k and v with fewer heads."""
    groups = q.shape[1] // k.shape[1]
    if mutant == "wrong head groups":
        k, v = k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1)
    else:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(-1, -2)
    if mutant != "no score scale":
        scores = scores / math.sqrt(q.shape[-1])
    if mutant != "no mask":
        later = torch.ones(scores.shape[-2:], dtype=torch.bool)
        scores = scores.masked_fill(later.triu(2 if mutant == "mask shifted" else 1), -math.inf)
    return scores.softmax(-1) @ v


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def llama(case, w, tokens, mutant):
    eps = 0.0 if mutant == "eps dropped" else case["norm_eps"]
    skip = 0.5 if mutant == "no residual scale" else 1.0
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(case["layers"]):
        at = f"model.layers.{layer}."
        n = rms_norm(x, w[at + "input_layernorm.weight"], eps)
        q = heads_of(n @ w[at + "self_attn.q_proj.weight"].T, case["heads"])
        k = heads_of(n @ w[at + "self_attn.k_proj.weight"].T, case["kv_heads"])
        v = heads_of(n @ w[at + "self_attn.v_proj.weight"].T, case["kv_heads"])
        q, k = rotate(q, case["rope_theta"], mutant), rotate(k, case["rope_theta"], mutant)
        out = attend(q, k, v, mutant).transpose(1, 2).flatten(-2)
        x = skip * x + out @ w[at + "self_attn.o_proj.weight"].T
        n = rms_norm(x, w[at + "post_attention_layernorm.weight"], eps)
        wide = F.silu(n @ w[at + "mlp.gate_proj.weight"].T) * (n @ w[at + "mlp.up_proj.weight"].T)
        x = skip * x + wide @ w[at + "mlp.down_proj.weight"].T
    matrix = w["model.embed_tokens.weight" if case["tied"] else "lm_head.weight"]
    if case["tied"] and mutant == "tied use dropped":
        matrix = matrix.detach()
    return rms_norm(x, w["model.norm.weight"], eps) @ matrix.T


def gpt2(case, w, tokens, mutant):
    eps = 0.0 if mutant == "eps dropped" else case["norm_eps"]
    skip = 0.5 if mutant == "no residual scale" else 1.0
    gelu = "none" if mutant == "no gelu tanh" else "tanh"
    shape = (case["hidden"],)
    wte, wpe = w["transformer.wte.weight"], w["transformer.wpe.weight"]
    x = wte[tokens] + wpe[: tokens.shape[1]]
    for layer in range(case["layers"]):
        at = f"transformer.h.{layer}."
        n = F.layer_norm(x, shape, w[at + "ln_1.weight"], w[at + "ln_1.bias"], eps)
        qkv = n @ w[at + "attn.c_attn.weight"] + w[at + "attn.c_attn.bias"]
        q, k, v = (heads_of(part, case["heads"]) for part in qkv.chunk(3, -1))
        out = attend(q, k, v, mutant).transpose(1, 2).flatten(-2)
        x = skip * x + out @ w[at + "attn.c_proj.weight"] + w[at + "attn.c_proj.bias"]
        n = F.layer_norm(x, shape, w[at + "ln_2.weight"], w[at + "ln_2.bias"], eps)
        wide = F.gelu(n @ w[at + "mlp.c_fc.weight"] + w[at + "mlp.c_fc.bias"], approximate=gelu)
        x = skip * x + wide @ w[at + "mlp.c_proj.weight"] + w[at + "mlp.c_proj.bias"]
    x = F.layer_norm(x, shape, w["transformer.ln_f.weight"], w["transformer.ln_f.bias"], eps)
    return x @ (wte.detach() if mutant == "tied use dropped" else wte).T


class Case:
    """One dumped case: its inputs and what the trainer made of them."""

    def __init__(self, dump, name, mode):
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([dump, name, mode, directory], check=True)
            path = pathlib.Path(directory)
            self.case = json.loads((path / "case.json").read_text())
            self.weights = np.fromfile(path / "weights.f32", np.float32)
            self.ours = np.fromfile(path / "ours.f32", np.float32).astype(np.float64)
            shape = (self.case["sequences"], self.case["seq"])
            inputs = np.fromfile(path / "inputs.u32", np.uint32).astype(np.int64)
            self.inputs = inputs.reshape(shape)
            self.targets = np.fromfile(path / "targets.u32", np.uint32).astype(np.int64).reshape(-1)

    def pieces(self, flat):
        """Cuts an array of one value per parameter into {tensor name: array}."""
        start = 0
        for tensor in self.case["tensors"]:
            count = math.prod(tensor["shape"])
            yield tensor["name"], flat[start : start + count].reshape(tensor["shape"])
            start += count
        assert start == len(flat), "the dump has another number of parameters"

    def reference(self, mutant=None):
        """Loss and, as in the dump, [logits after the first sequence, gradients]."""
        w = {name: torch.tensor(array, dtype=torch.float64, requires_grad=True)
             for name, array in self.pieces(self.weights)}
        model = {"llama": llama, "gpt2": gpt2}[self.case["family"]]
        logits = model(self.case, w, torch.from_numpy(self.inputs), mutant)
        loss = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(self.targets))
        loss.backward()
        zero = torch.zeros(1, dtype=torch.float64)
        parts = [logits[0, -1].detach()] + [
            (zero.expand(t.numel()) if t.grad is None else t.grad.flatten()) for t in w.values()]
        return loss.item(), torch.cat(parts).numpy()

    def distances(self, loss, reference):
        """{what: |ours - reference| / |reference|}."""
        def distance(a, b):
            return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))

        vocab = self.case["vocab"]
        found = {"loss": abs(self.case["loss"] - loss) / abs(loss),
                 "logits": distance(self.ours[:vocab], reference[:vocab])}
        theirs = dict(self.pieces(reference[vocab:]))
        for name, array in self.pieces(self.ours[vocab:]):
            found[name] = distance(array, theirs[name])
        return found


def compare(dumped, limit):
    found = dumped.distances(*dumped.reference())
    for name, distance in sorted(found.items(), key=lambda item: -item[1])[:5]:
        print(f"  {distance:9.2e}  {name}")
    worst = max(found.values())
    verdict = "equal" if worst <= limit else "DIFFERENT"
    print(f"{dumped.case['name']}: {verdict}, largest distance {worst:.2e}, limit {limit:.0e}")
    return worst <= limit


def try_mutants(dumped, limit):
    """Each mutant that changes this model must be told apart; says which do not change it."""
    plain_loss, plain = dumped.reference()
    caught = True
    for mutant in MUTANTS:
        loss, values = dumped.reference(mutant)
        if loss == plain_loss and np.array_equal(values, plain):
            print(f"  not in this model: {mutant}")
            continue
        worst = max(dumped.distances(loss, values).values())
        print(f"  {mutant}: distance {worst:.2e}")
        caught = caught and worst > limit
    print(f"{dumped.case['name']}: {'all mutants told apart' if caught else 'A MUTANT PASSES'}")
    return caught


def write_golden(dump, directory):
    for name in ["llama-golden", "llama-tied-golden", "llama-blocks-golden", "gpt2-golden"]:
        dumped = Case(dump, name, "f32")
        loss, values = dumped.reference()
        path = pathlib.Path(directory) / f"{name}.f32"
        np.concatenate([[loss], values]).astype("<f4").tofile(path)
        print(f"{path}: {path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dump", required=True)
    parser.add_argument("--case")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--golden")
    options = parser.parse_args()
    if options.golden:
        write_golden(options.dump, options.golden)
        return 0
    dumped = Case(options.dump, options.case, "bf16" if options.bf16 else "f32")
    limit = BF16_LIMIT if options.bf16 else F32_LIMIT
    passed = try_mutants(dumped, limit) if options.mutants else compare(dumped, limit)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
