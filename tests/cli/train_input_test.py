#!/usr/bin/python3
"""Bad data, models, flags and budgets of a training: refused with nothing written."""

import json
import os
import re
import struct

from program_case import Case, TEXT, events, main, run


class DataTest(Case):
    def test_missing(self):
        self.refused(2, ["none", "No such file"], self.arguments(data=self.path("none")))

    def test_directory(self):
        os.mkdir(self.path("folder"))
        self.refused(2, ["folder", "not a regular file"], self.arguments(data=self.path("folder")))

    def test_unreadable(self):
        os.chmod(self.data, 0)
        program = self.without_rights()
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        before = os.listdir(self.directory)
        self.sentence(run(*self.arguments(store=self.path("open/store")), program=program), 2,
                      ["text", "Permission denied"])
        self.assertEqual(os.listdir(self.path("open")), [])
        self.assertEqual(os.listdir(self.directory), before)

    def test_empty(self):
        self.refused(2, ["nothing", "is empty"], self.arguments(data=self.file("nothing", b"")))

    def test_too_short(self):
        self.refused(2, ["tiny", "needs at least [0-9]+"],
                     self.arguments(data=self.file("tiny", b"short")))

    def test_shortest_that_works(self):
        """The length in the message is one that works."""
        result = run(*self.arguments(data=self.file("tiny", b"short")))
        needed = int(re.search("needs at least ([0-9]+)", result.stderr)[1])
        self.refused(2, ["needs at least"],
                     self.arguments(data=self.file("tiny", TEXT[:needed - 1])))
        self.file("tiny", TEXT[:needed])
        result = run(*self.arguments("--steps", "1", data=self.path("tiny")))
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_odd_length(self):
        self.refused(2, ["odd"], self.arguments("--vocab", "1000",
                                                data=self.file("odd", b"\x01" * 20001)))

    def test_token_outside_vocabulary(self):
        tokens = self.file("tokens", struct.pack("<H", 5) * 20000 + struct.pack("<H", 1000) +
                           struct.pack("<H", 5) * 20000)
        self.refused(2, ["tokens", "token 1000 at byte 40000", "1000"],
                     self.arguments("--vocab", "1000", data=tokens))

    def test_vocabulary_of_data_and_model(self):
        config = self.file("config.json", json.dumps(self.config(vocab_size=100)).encode())
        self.refused(2, ["vocabulary of 256", "vocab_size", "100"],
                     ["train", "--config", config, "--data", self.data, "--store", self.store])

    @staticmethod
    def config(**changes):
        values = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
                  "vocab_size": 256, "max_position_embeddings": 128}
        values.update(changes)
        return values


class ModelTest(Case):
    def config(self, **changes):
        text = json.dumps(DataTest.config(**changes)).encode()
        return ["train", "--config", self.file("config.json", text), "--data", self.data,
                "--store", self.store, "--seq", "32"]

    def test_unknown(self):
        arguments = ["train", "--data", self.data, "--store", self.store, "--model"]
        self.refused(2, ['"tiney"', 'did you mean "tiny"'], [*arguments, "tiney"])
        self.refused(2, ['"xyzzy"', "known sizes are nano, tiny"], [*arguments, "xyzzy"])
        self.refused(2, ["none.json", "No such file"], [*arguments, self.path("none.json")])

    def test_config_fields(self):
        self.refused(2, ["config.json", "model_type", "mamba"], self.config(model_type="mamba"))
        self.refused(2, ["attention_bias", "supports only false"],
                     self.config(attention_bias=True))
        self.refused(2, ["hidden_act", "gelu"], self.config(hidden_act="gelu"))
        self.refused(2, ["num_hidden_layers", "whole number"], self.config(num_hidden_layers=-1))
        self.refused(2, ["num_experts"], self.config(num_experts=8))
        self.refused(2, ["rope_scaling"], self.config(rope_scaling={"type": "linear",
                                                                    "factor": 2.0}))
        self.refused(2, ["num_key_value_heads"], self.config(num_key_value_heads=3))

    def test_config_that_is_none(self):
        for content in (b"", b"{", b"[1]", b"\xff\xfe", b'{"model_type": "llama"}'):
            path = self.file("config.json", content)
            self.refused(2, ["config.json"], ["train", "--config", path, "--data", self.data,
                                              "--store", self.store])

    def test_good_config_works(self):
        result = run(*self.config(), "--steps", "1", "--batch", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.still_good(1)

    def test_sequence_beyond_positions(self):
        self.refused(2, ["--seq 256", "128 positions", "shorter"],
                     [*self.config()[:-2], "--seq", "256"])


class FlagTest(Case):
    def test_unknown_flags(self):
        self.refused(2, ["--stesp", 'did you mean "--steps"'], self.arguments("--stesp", "3"))
        self.refused(2, ["--rma", 'did you mean "--ram"'], self.arguments("--rma=3MiB"))
        self.refused(2, ["--xyzzy", "train --help"], self.arguments("--xyzzy"))

    def test_the_last_one_counts(self):
        self.assertEqual(events(self.train("--steps", "5", "--steps", "1", "--json"),
                                "end")[0]["step"], 1)

    def test_bad_values(self):
        self.refused(2, ["--batch 4", "--micro 3"], self.arguments("--batch", "4", "--micro", "3"))
        self.refused(2, ["--steps", "0"], self.arguments("--steps", "0"))
        self.refused(2, ["--lr", "nan"], self.arguments("--lr", "nan"))
        self.refused(2, ["--ram \"5X\" is not a size"], self.arguments("--ram", "5X"))
        self.refused(2, ["--scratch", "--resume"], self.arguments("--scratch", "--resume"))
        self.refused(2, ["--queue", "threads"], self.arguments("--queue", "thread"))


class BudgetTest(Case):
    def test_the_smallest_that_works_works(self):
        below = self.arguments("--ram", "1MiB")
        self.refused(2, ["--ram", "host memory is short by", "1.00 MiB|1 MiB"], below)
        smallest = int(re.search(r"smallest that works is --ram ([0-9]+)", run(*below).stderr)[1])
        self.refused(2, ["short by"], self.arguments("--ram", str(smallest - 1)))
        self.train("--ram", str(smallest), "--steps", "2")
        self.still_good(2)

    def test_resume_below_the_minimum(self):
        self.train("--steps", "2")
        self.refused(2, ["short by"], self.arguments("--steps", "2", "--resume", "--ram", "1MiB"))
        self.still_good(2)

    def test_blocks_of_the_store_decide_the_minimum(self):
        """Not those that a new store would get."""
        self.train("--steps", "1", "--block", "65536")
        smallest = self.train("--steps", "1", "--resume", "--ram", "min", "--json")
        bytes_used = events(smallest, "start")[0]["ram_bytes"]
        self.refused(2, ["short by"], self.arguments("--steps", "1", "--resume", "--ram",
                                                     str(bytes_used - 1)))
        result = run("generate", "--store", self.store, "--tokens", "2", "--ram", "min")
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    main()
