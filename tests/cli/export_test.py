#!/usr/bin/python3
"""Exports the weights of small runs and reads them back with a reader of its own.

The reader uses struct, json and numpy only. What it reads is compared with the bits in the store's
data file, which are found from the manifest by the byte table of io/store_format.hpp, and the model
is computed from it with the plain PyTorch implementation of tests/train/reference.py.
"""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = None
TEXT = b"".join(b"line %d of a text that is long enough to train on\n" % i for i in range(2000))
TYPES = {"F32": "<u4", "BF16": "<u2"}  # as bits


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, errors="replace",
                          timeout=120, **options)


def read_safetensors(path):
    """{name: bits}, metadata; every rule of the format is checked."""
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    assert length <= len(raw) - 8 and raw[8:9] == b"{"
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values())
    data, tensors, ranges = raw[8 + length:], {}, []
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        bits = np.frombuffer(data[begin:end], TYPES[tensor["dtype"]])
        tensors[name] = bits.reshape(tensor["shape"])
        ranges.append((begin, end))
    reached = 0
    for begin, end in sorted(ranges):
        assert begin == reached, "data overlaps or has a hole"
        reached = end
    assert reached == len(data)
    return tensors, metadata


def read_model(directory):
    """All tensors of a directory as Hugging Face lays it out, and the files that held them."""
    directory = pathlib.Path(directory)
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        tensors, _ = read_safetensors(directory / "model.safetensors")
        return tensors, ["model.safetensors"]
    content = json.loads(index.read_text())
    files = sorted(set(content["weight_map"].values()))
    tensors = {}
    for name in files:
        part, _ = read_safetensors(directory / name)
        for tensor, bits in part.items():
            assert content["weight_map"].pop(tensor) == name
            tensors[tensor] = bits
    assert not content["weight_map"]
    assert content["metadata"]["total_size"] == sum(bits.nbytes for bits in tensors.values())
    return tensors, files


class StoreBits:
    """Weights as they lie in the data file of a store on one drive."""

    # By major version of the format: numbers of sections, blocks and spills; lengths of description
    # and blob; and where the sections begin.
    PLACES = {1: ("<84xIQQQQ8x", 128, 0), 2: ("<92xIQQQQ64x", 192, 4)}

    def __init__(self, directory):
        directory = pathlib.Path(directory)
        newest = max(directory.glob("manifest.*.a"), key=lambda path: int(path.name.split(".")[1]))
        self.raw = newest.read_bytes()
        assert self.raw[:8] == b"PNSTKMAN"
        (major,) = struct.unpack_from("<I", self.raw, 8)
        layout, self.at, per_file = self.PLACES[major]
        sections, blocks, spills, described, blob = struct.unpack_from(layout, self.raw)
        self.at += per_file  # of the only data file
        self.sections = [self.section() for _ in range(sections)]
        self.lengths = [self.take(f"<QII{sections}Q")[3:] for _ in range(blocks)]
        self.at += 8 * spills
        self.description = json.loads(self.raw[self.at:self.at + described])
        self.at += described + blob
        self.slots = [self.take(f"<IIQII{sections}Q")[0] for _ in range(blocks)]
        (length,) = struct.unpack_from("<Q", self.raw, 48)  # the file may be longer
        assert self.at + 16 == length
        self.data = (directory / "data.0").read_bytes()
        assert self.data[:8] == b"PNSTKDAT"
        self.slot_bytes, _, self.slots_offset = struct.unpack_from("<QQQ", self.data, 56)

    def take(self, layout):
        values = struct.unpack_from(layout, self.raw, self.at)
        self.at += struct.calcsize(layout)
        return values

    def section(self):
        name_bytes, codec_bytes, tile_bytes, _ = self.take("<HHII")
        name = self.raw[self.at:self.at + name_bytes].decode()
        self.at += name_bytes + codec_bytes
        return name, tile_bytes

    def block_section(self, block, wanted):
        """The bytes of a section of a block."""
        offset = self.slots_offset + self.slots[block] * self.slot_bytes
        for (name, tile_bytes), length in zip(self.sections, self.lengths[block]):
            if name == wanted:
                return self.data[offset:offset + length]
            tiles = -(-length // tile_bytes)
            offset += -(-length // 4096) * 4096 + -(-tiles * 8 // 4096) * 4096
        raise KeyError(wanted)

    def tensors(self):
        """{name: (bits of hi, lo)}"""
        groups = []
        for group in self.description["groups"]:
            blocks = range(group["first_block"], group["first_block"] + len(group["blocks"]))
            groups.append([np.frombuffer(b"".join(self.block_section(b, part) for b in blocks),
                                         dtype) for part, dtype in (("hi", "<u2"), ("lo", "<i2"))])
        found = {}
        for tensor in self.description["tensors"]:
            hi, lo = groups[tensor["group"]]
            span = slice(tensor["offset"], tensor["offset"] + int(np.prod(tensor["shape"])))
            found[tensor["name"]] = [part[span].reshape(tensor["shape"]) for part in (hi, lo)]
        return found


def f32_of(bits):
    return (bits.view(np.float32) if bits.dtype == np.uint32
            else (bits.astype(np.uint32) << 16).view(np.float32))


def expected_names(config):
    """The state dict of the transformers class that the config names, tied weights once."""
    if config["model_type"] == "llama":
        names = ["model.embed_tokens.weight", "model.norm.weight"]
        for i in range(config["num_hidden_layers"]):
            names += [f"model.layers.{i}.{part}.weight" for part in (
                "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                "self_attn.o_proj", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj",
                "mlp.down_proj")]
        return set(names + ([] if config["tie_word_embeddings"] else ["lm_head.weight"]))
    names = ["wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"]
    for i in range(config["n_layer"]):
        names += [f"h.{i}.{part}.{kind}" for part in (
            "ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
            for kind in ("weight", "bias")]
    return {"transformer." + name for name in names}


def torch_logits(config, weights, tokens):
    """Logits of every position, from the reference of the trainer's tests."""
    sys.path.insert(0, str(ROOT / "tests" / "train"))
    import reference  # pylint: disable=import-outside-toplevel
    torch = reference.torch
    tensors = {name: torch.tensor(f32_of(bits).astype(np.float64))
               for name, bits in weights.items()}
    batch = torch.tensor([tokens])
    if config["model_type"] == "llama":
        case = {"norm_eps": config["rms_norm_eps"], "layers": config["num_hidden_layers"],
                "heads": config["num_attention_heads"], "kv_heads": config["num_key_value_heads"],
                "rope_theta": config["rope_theta"], "tied": config["tie_word_embeddings"]}
        return reference.llama(case, tensors, batch, None)[0].numpy()
    case = {"norm_eps": config["layer_norm_epsilon"], "layers": config["n_layer"],
            "heads": config["n_head"], "hidden": config["n_embd"]}
    return reference.gpt2(case, tensors, batch, None)[0].numpy()


class ExportTest(unittest.TestCase):
    def setUp(self):
        if "train" not in run("--help").stdout:
            self.skipTest("this build has no train command: src/train/run.cpp is missing")
        self.directory = tempfile.mkdtemp(prefix="penstock-export-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        with open(self.path("text"), "wb") as file:
            file.write(TEXT)

    def path(self, name):
        return os.path.join(self.directory, name)

    def train_arguments(self, model, steps, *more):
        return ["train", "--model", model, "--seq", "32", "--batch", "4", "--threads", "1",
                "--lr", "1e-2", "--warmup", "1", "--data", self.path("text"), "--store",
                self.path("store"), "--steps", str(steps), "--quiet", *more]

    def done(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def export(self, name, *flags):
        result = self.done(run("export", self.path("store"), "--out", self.path(name), "--json",
                               *flags))
        value = json.loads(result.stdout)
        self.assertEqual(value["schema"], "penstock.export/1")
        return value

    def check_model(self, model):
        self.done(run(*self.train_arguments(model, 8)))
        value = self.export("bf16")
        self.assertEqual(value["step"], 8)
        self.export("f32", "--dtype", "f32", "--max-shard", "100kB")
        config = json.loads(pathlib.Path(self.path("f32/config.json")).read_text())
        short, short_files = read_model(self.path("bf16"))
        exact, exact_files = read_model(self.path("f32"))
        self.assertEqual(short_files, ["model.safetensors"])
        self.assertGreater(len(exact_files), 3)
        self.assertEqual(set(short), expected_names(config))
        self.assertEqual(set(exact), set(short))
        self.assertEqual(config["torch_dtype"], "float32")
        self.assertEqual(config["vocab_size"], 256)
        for name, bits in exact.items():
            rounded = ((bits + np.uint32(0x8000)) >> 16).astype(np.uint16)
            np.testing.assert_array_equal(short[name], rounded, name)
        stored = StoreBits(self.path("store")).tensors()
        self.assertEqual(set(stored), set(short))
        for name, (hi, lo) in stored.items():
            np.testing.assert_array_equal(short[name], hi, name)
            master = ((hi.astype(np.int64) << 16) + lo) & 0xFFFFFFFF
            np.testing.assert_array_equal(exact[name], master.astype(np.uint32), name)
        stats = json.loads(self.done(run("inspect", self.path("store"), "--stats",
                                         "--json")).stdout)["stats"]
        for line in stats:
            if line["section"] in ("weight", "hi"):
                bits = (exact if line["section"] == "weight" else short)[line["tensor"]]
                self.assertEqual(line["min"], f32_of(bits).min(), line)
                self.assertEqual(line["max"], f32_of(bits).max(), line)
                self.assertEqual(line["count"], bits.size)
        return config, exact

    def check_tokens(self, config, weights):
        """Each token that the program generates is the reference's likeliest."""
        prompt = b"line "
        text = subprocess.run(
            [PROGRAM, "generate", "--store", self.path("store"), "--prompt", prompt.decode(),
             "--tokens", "12", "--temperature", "0", "--compute", "fp32", "--threads", "1",
             "--json", "--quiet"], capture_output=True, timeout=120, check=True).stdout
        tokens = [json.loads(line)["token"] for line in text.splitlines()]
        self.assertEqual(len(tokens), 12)
        logits = torch_logits(config, weights, list(prompt) + tokens)
        for i, token in enumerate(tokens):
            at = logits[len(prompt) + i - 1]
            # fp32 against double; a wrong layout or a wrong sign is off by far more.
            self.assertGreaterEqual(at[token], at.max() - 1e-3, f"token {i}")
        self.assertGreater(np.ptp(logits[-1]), 1.0, "training must have made some tokens likelier")

    def test_llama(self):
        config, weights = self.check_model("nano")
        self.assertEqual(config["architectures"], ["LlamaForCausalLM"])
        self.check_tokens(config, weights)

    def test_gpt2(self):
        config, weights = self.check_model("nano-gpt2")
        self.assertEqual(config["architectures"], ["GPT2LMHeadModel"])
        self.check_tokens(config, weights)

    def test_config_is_taken_back(self):
        """A model can be trained from what was exported."""
        self.done(run(*self.train_arguments("nano-gpt2", 1)))
        self.export("model")
        self.done(run("train", "--model", self.path("model"), "--seq", "32", "--batch", "2",
                      "--threads", "1", "--data", self.path("text"), "--store", self.path("again"),
                      "--steps", "1"))

    def test_while_training(self):
        """Exports of a training that goes on are whole, and change nothing in it."""
        plain = self.train_arguments("nano", 200, "--commit-every", "20")
        self.done(run(*plain))
        expected = json.loads(self.done(run("inspect", self.path("store"), "--hash",
                                            "--json")).stdout)["hash"]
        shutil.rmtree(self.path("store"))
        with subprocess.Popen([PROGRAM, *plain], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as training:
            count = 0
            while training.poll() is None:
                result = run("export", self.path("store"), "--out", self.path(f"out{count}"),
                             "--json")
                if result.returncode == 0:
                    tensors, _ = read_model(self.path(f"out{count}"))
                    self.assertEqual(len(tensors), 39)
                    self.assertEqual(json.loads(result.stdout)["step"] % 20, 0)
                    count += 1
                else:  # before the first commit, or overtaken too often
                    self.assertIn(result.returncode, (1, 2), result.stderr)
                    self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                    self.assertFalse(os.path.exists(self.path(f"out{count}")))
            self.assertEqual(training.wait(), 0, training.stderr.read())
        after = json.loads(self.done(run("inspect", self.path("store"), "--hash",
                                         "--json")).stdout)["hash"]
        self.assertEqual(after, expected)

    def test_kill(self):
        """A killed export leaves no model, and the next one says what to do."""
        self.done(run(*self.train_arguments("nano", 1)))
        for delay in (0.0, 0.005, 0.01, 0.02):
            out = self.path(f"killed{delay}")
            with subprocess.Popen([PROGRAM, "export", self.path("store"), "--out", out],
                                  stdout=subprocess.DEVNULL) as export:
                time.sleep(delay)
                export.send_signal(signal.SIGKILL)
            if os.path.exists(out):  # it was done before
                self.assertEqual(len(read_model(out)[0]), 39)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
