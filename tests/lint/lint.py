#!/usr/bin/env python3
"""Holds the tree to the house rules of CONTRIBUTING.md that a program can check.

usage: lint.py [--root DIR] RULE...      (RULE: one of those listed by --list, or "all")

Prints "path:line: what is wrong, and what to do" and exits 1 if anything is; warnings do not fail.
Exits 77 when a tool that the rule needs is not installed. Only the standard library is used.

A line may carry, in a comment on it or on the line above,
    lint: allow WORD because REASON      e.g. lint: allow new because the C API hands out handles
and a file with one function that is better long may say anywhere
    lint: long because REASON
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

import cpp_text

CPP = {".cpp", ".hpp", ".h", ".cu", ".cuh", ".c"}
HEADERS = {".hpp", ".h", ".cuh"}
SKIPPED_DIRECTORIES = re.compile(r"^(build.*|\..+|__pycache__)$")
FILE_LINES = (400, 700)
FUNCTION_LINES = (60, 80)
COLUMNS = 100

# Module: (its directory, the modules whose headers it may include besides its own). This is the
# include direction of docs/architecture.md; "include" is include/penstock/.
BASE = {"base"}
PARTS = BASE | {"topo", "io", "kernels", "device"}
UPPER = PARTS | {"mem", "comm", "plan", "optim"}
MODULES = {
    "base": ("src/base", set()),
    "topo": ("src/topo", BASE),
    "io": ("io", BASE),
    "kernels": ("kernels", BASE),
    "device": ("src/device", BASE),
    "mem": ("src/mem", PARTS),
    "comm": ("src/comm", PARTS),
    "measure": ("src/measure", PARTS | {"mem"}),
    "plan": ("src/plan", {"base", "topo", "mem", "comm"}),  # and PURE_HEADERS: no I/O, no clock
    "optim": ("src/optim", PARTS | {"mem", "comm", "plan"}),
    "engine": ("src/engine", UPPER),
    "capi": ("src/capi", UPPER | {"engine", "measure", "include"}),
    "model": ("src/model", BASE),
    "train": ("src/train", UPPER | {"engine", "model", "include"}),
    "insight": ("src/insight", BASE),
    "cli": ("src/cli", UPPER | {"engine", "capi", "train", "model", "measure", "insight",
                        "include"}),
    "include": ("include", set()),
    "examples": ("examples", {"include"}),
    "python": ("python", {"include"}),
}
PURE_HEADERS = {"plan": {"io/section.hpp", "io/slot_table.hpp", "io/storage_queue.hpp"}}
# First word of an include path -> module; the two roots are the repository and src/.
INCLUDE_ROOTS = {
    **{name: name for name, (where, _) in MODULES.items() if where.startswith("src/")},
    "io": "io", "kernels": "kernels", "penstock": "include",
}

LIBRARY = ("src/", "io/", "kernels/")
NOT_THE_LIBRARY = ("src/cli/",)
BANNED = [  # (word for "lint: allow", pattern, what to do; True if programs must obey it too)
    ("abort", r"(?<![.>\w])(abort|terminate|exit|quick_exit)\s*\(", "return a Status", True),
    ("abort", r"(?<![.>\w])(_exit|_Exit)\s*\(", "return a Status", False),
    ("assert", r"(?<![\w_])assert\s*\(", "return a Status, or use static_assert", True),
    ("new", r"\bnew\b\s*[\w:(]", "use std::make_unique or a container", True),
    ("delete", r"(?<!= )(?<!=)(?<!operator )\bdelete\b", "give it an owner", True),
    ("using", r"\busing\s+namespace\b", "name what is used", True),
    ("malloc", r"\b(malloc|calloc|realloc)\s*\(", "use a container or an arena", True),
    ("printf", r"\b(std::)?(v?f?printf|puts|fputs|putchar|perror)\s*\(",
     "the library does not print: return the text or log it", False),
    ("printf", r"\bfmt::print\s*\(|\bstd::(cout|cerr|clog)\b",
     "the library does not print: return the text or log it", False),
    ("throw", r"\bthrow\b", "return a Status", False),
]
# Where a private constructor keeps make_unique out, the owner takes the object at once.
OWNED_NEW = re.compile(r"\b(unique_ptr<[^;{}]*?>|\w+Ptr)(\s+\w+)?\(\s*new\b")
# Approximations, whose bits differ between processors (docs/architecture.md, numerics).
INEXACT = re.compile(r"\b_mm\d*_\w*?(rcp|rsqrt|exp2a)\w*")
LABELS = set(MODULES) | {"unit", "uring", "sim", "crash", "gpu", "slow", "fuzz", "lint", "notsan",
                          "noasan"}
# Paths of one developer's machine have no meaning elsewhere.
MACHINE_PATH = re.compile(r"(?<![\w.~}*])/(?:home|root|Users|w[o]rk)/\w")
# Words of a workplace, and pages that are not in the tree (the ideas are in docs/architecture.md).
FOREIGN_WORDS = re.compile(r"\b(sub[ -]?agents?|DESIGN(\.md)? (section|\u00a7))", re.IGNORECASE)


class Report:
    def __init__(self):
        self.errors = []
        self.warnings = []
        self.skipped = ""

    def error(self, path, line, text):
        self.errors.append(f"{path}:{line}: {text}")

    def warn(self, path, line, text):
        self.warnings.append(f"{path}:{line}: warning: {text}")


class Tree:
    """The files of the project; paths are relative to its root, with forward slashes."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.files = sorted(self._walk(self.root))
        self._sources = {}

    def _walk(self, directory):
        for entry in sorted(directory.iterdir()):
            if entry.is_symlink():
                continue
            if entry.is_dir():
                keep = entry.name == ".ci" or not SKIPPED_DIRECTORIES.match(entry.name)
                if keep and not (directory == self.root and entry.name == "shared"):
                    yield from self._walk(entry)
            elif entry.is_file():
                yield entry.relative_to(self.root).as_posix()

    def read(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def with_suffix(self, suffixes, under=()):
        return [path for path in self.files
                if pathlib.PurePosixPath(path).suffix in suffixes
                and (not under or path.startswith(tuple(under)))]

    def source(self, path):
        """The parsed C++ file (kept: several rules look at it)."""
        if path not in self._sources:
            self._sources[path] = cpp_text.Source(self.read(path))
        return self._sources[path]

    def scripts(self):
        return [path for path in self.files
                if path.startswith(("scripts/", ".ci/")) and self.read(path).startswith("#!")]


def module_of(path):
    for name, (directory, _) in MODULES.items():
        if path.startswith(directory + "/"):
            return name
    return None


def rule_includes(tree, report):
    """Who may include whom (docs/architecture.md)."""
    for path in tree.with_suffix(CPP):
        module = module_of(path)
        if module is None:  # tests and bench may include anything
            continue
        allowed = MODULES[module][1] | {module}
        for line, target, quoted in tree.source(path).includes:
            first = target.split("/")[0]
            if not quoted and first != "penstock":
                continue  # a system or library header
            if "/" not in target:
                if module not in ("examples", "include"):
                    report.error(path, line, f'"{target}" names no directory; write it from the '
                                             "root, as in \"base/result.hpp\"")
                continue
            other = INCLUDE_ROOTS.get(first)
            if other is None:
                report.error(path, line, f'"{target}" begins with no directory of the project')
            elif other not in allowed and target not in PURE_HEADERS.get(module, ()):
                report.error(path, line, f'{module} may not include {other} ("{target}")')


def rule_size(tree, report):
    """Lines of files and functions, columns."""
    long_suffixes = CPP | {".py", ".cmake"}
    texts = tree.with_suffix(long_suffixes) + tree.scripts()
    texts += [path for path in tree.files if path.endswith("CMakeLists.txt")]
    for path in texts:
        lines = tree.read(path).splitlines()
        excused = any(re.search(r"lint: long because \w+", line) for line in lines)
        if len(lines) > FILE_LINES[1]:
            report.error(path, len(lines), f"{len(lines)} lines; split the file (limit "
                                           f"{FILE_LINES[1]})")
        elif len(lines) > FILE_LINES[0] and not excused:
            report.warn(path, len(lines), f"{len(lines)} lines; better below {FILE_LINES[0]}")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS:
                report.error(path, number, f"{len(line)} columns; limit {COLUMNS}")
        if pathlib.PurePosixPath(path).suffix in CPP and not excused:
            for number, count in tree.source(path).functions():
                if count > FUNCTION_LINES[1]:
                    report.error(path, number, f"a function of {count} lines; split it (limit "
                                               f"{FUNCTION_LINES[1]})")
                elif count > FUNCTION_LINES[0]:
                    report.warn(path, number, f"a function of {count} lines; better below "
                                              f"{FUNCTION_LINES[0]}")


def rule_banned(tree, report):
    """Calls that a library must not make, and a few that programs should not either."""
    for path in tree.with_suffix(CPP, LIBRARY):
        program = path.startswith(NOT_THE_LIBRARY)
        source = tree.source(path)
        code = OWNED_NEW.sub(lambda match: "\n" * match.group(0).count("\n"), source.code)
        for number, line in enumerate(code.split("\n"), 1):
            for word, pattern, advice, everywhere in BANNED:
                found = re.search(pattern, line)
                if found and (everywhere or not program) and not source.allows(number, word):
                    report.error(path, number, f"'{found.group(0).strip()}' is not used here; "
                                               f"{advice}")


def names_file(text, name):
    """True if CMake code names the file, in full or as ${x}_test.cpp with x among its words."""
    for token in re.findall(r"[\w./${}-]+\.(?:cpp|cu|c)\b", text):
        pattern = re.sub(r"\\\$\\{\w+\\}", r"([\\w-]+)", re.escape(token))
        found = re.fullmatch(pattern, name)
        if found and all(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)
                         for word in found.groups()):
            return True
    return False


def rule_cmake(tree, report):
    """Every source file is listed in a CMakeLists.txt, or .cmake, of its directory or above."""
    lists = {}
    for path in tree.files:
        if path.endswith(("/CMakeLists.txt", ".cmake")) or path == "CMakeLists.txt":
            directory = pathlib.PurePosixPath(path).parent
            lists[directory] = lists.get(directory, "") + re.sub(r"#.*", "", tree.read(path))
    for path in tree.with_suffix({".cpp", ".cu", ".c"}):
        where = pathlib.PurePosixPath(path)
        if not any(names_file(lists.get(directory, ""), where.relative_to(directory).as_posix())
                   for directory in where.parents):
            report.error(path, 1, "listed in no CMakeLists.txt: it is neither built nor tested")


def rule_headers(tree, report):
    """A header begins with #pragma once and its contract."""
    for path in tree.with_suffix(HEADERS):
        lines = [line for line in tree.read(path).splitlines() if line.strip()]
        if not lines or lines[0] != "#pragma once":
            report.error(path, 1, "the first line of a header is #pragma once")
            continue
        second = lines[1].strip() if len(lines) > 1 else ""
        if not re.match(r"(///?|/\*\*?)\s*\w+", second):
            report.error(path, 2, "after #pragma once comes the contract: a comment that says what "
                                  "this is, who owns what, units, threads, errors")


def rule_words(tree, report):
    """Nothing of one developer's machine in the project."""
    for path in tree.files:
        if path == "tests/lint/self_test.py" or b"\0" in (tree.root / path).read_bytes()[:4096]:
            continue
        for number, line in enumerate(tree.read(path).splitlines(), 1):
            for pattern in (MACHINE_PATH, FOREIGN_WORDS):
                found = pattern.search(line)
                if found and path != "tests/lint/lint.py":
                    report.error(path, number, f"'{found.group(0)}' means nothing to a reader")


def rule_kernels(tree, report):
    """Formulas stand alone; numeric code calls nothing whose bits depend on the processor."""
    for path in tree.with_suffix(CPP, ("kernels/",)):
        source = tree.source(path)
        if path.startswith("kernels/math/"):
            for line, target, _ in source.includes:
                if re.match(r"(\w*simd|hwy/|cuda|\w*intrin\.h|arm_neon\.h)", target):
                    report.error(path, line, "kernels/math is a template on the value type; it "
                                             f"does not include {target}")
        for number, line in enumerate(source.code_lines, 1):
            found = INEXACT.search(line)
            if found:
                report.error(path, number, f"{found.group(0)} gives other bits on other "
                                           "processors; divide, or take the root")


def rule_labels(tree, report):
    """Test labels are those of CONTRIBUTING.md, so that a filter means the same everywhere."""
    for path in tree.files:
        if not (path.endswith("CMakeLists.txt") and path.startswith("tests/")):
            continue
        text = re.sub(r"#.*", "", tree.read(path))
        for found in re.finditer(r"\bLABELS\s+((?:\"[^\"]*\"|[a-z_;]+)(?:\s+[a-z_;]+)*)", text):
            line = text.count("\n", 0, found.start()) + 1
            for label in re.split(r"[\s;\"]+", found.group(1)):
                if label and label not in LABELS:
                    report.error(path, line, f"unknown label '{label}'; known: "
                                             f"{' '.join(sorted(LABELS))}")


def rule_links(tree, report):
    """Relative links of the documents lead somewhere."""
    for path in tree.with_suffix({".md"}):
        for number, line in enumerate(tree.read(path).splitlines(), 1):
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                if re.match(r"(\w+:|#)", target):
                    continue
                place = (tree.root / path).parent / target.split("#")[0]
                if not place.exists():
                    report.error(path, number, f"the link to {target} leads nowhere")


def run_tool(tree, report, tool, arguments, files):
    """What `tool` prints about `files`; None when it has nothing to say or is not installed."""
    if shutil.which(tool) is None:
        report.skipped = f"{tool} is not installed; apt-get install {tool}"
        return None
    if not files:
        return None
    done = subprocess.run([tool, *arguments, *files], cwd=tree.root, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return None if done.returncode == 0 else done.stdout or f"{tool} exited {done.returncode}"


def rule_format(tree, report):
    """C++ is laid out as .clang-format says (version 14)."""
    said = run_tool(tree, report, "clang-format-14", ["--dry-run", "-Werror", "--style=file"],
                    tree.with_suffix(CPP))
    places = re.findall(r"^([^\s:]+):(\d+):\d+: error", said or "", re.MULTILINE)
    for path in dict.fromkeys(path for path, _ in places):
        lines = list(dict.fromkeys(line for place, line in places if place == path))
        report.error(path, lines[0], f"{len(lines)} lines are laid out otherwise; run "
                                     f"clang-format-14 -i {path}")
    if said and not places:
        report.errors.append(said)


def rule_shell(tree, report):
    """shellcheck has nothing to say about the scripts."""
    scripts = [path for path in tree.scripts() if "bash" in tree.read(path).split("\n", 1)[0]]
    report.errors += (run_tool(tree, report, "shellcheck", ["--format=gcc"], scripts)
                      or "").splitlines()


RULES = {name[5:]: function for name, function in list(globals().items())
         if name.startswith("rule_")}


def main(arguments):
    parser = argparse.ArgumentParser(description="house rules; see the top of this file")
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--list", action="store_true", help="print the rules and stop")
    parser.add_argument("rules", nargs="*", metavar="RULE")
    options = parser.parse_args(arguments)
    if options.list:
        for name, function in RULES.items():
            print(f"{name:<10}{function.__doc__}")
        return 0
    chosen = list(RULES) if options.rules in ([], ["all"]) else options.rules
    unknown = [name for name in chosen if name not in RULES]
    if unknown:
        parser.error(f"no rule {unknown[0]}; known: {' '.join(RULES)}")
    tree, report = Tree(options.root), Report()
    for name in chosen:
        RULES[name](tree, report)
    print("\n".join(report.warnings + report.errors))
    if report.errors:
        print(f"{len(report.errors)} to mend", file=sys.stderr)
        return 1
    if report.skipped:
        print(report.skipped)
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
