#!/usr/bin/python3
"""An installed copy is all that a user of the C library needs.

Installs into a directory, moves it, builds examples/01_c_train and a C++ program against it, once
through the CMake package and once through pkg-config, and runs what came out.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCES = pathlib.Path(__file__).resolve().parents[2]
CONSUMER = """
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C CXX)
find_package(penstock 0.1 REQUIRED)
add_executable(train main.c)
target_link_libraries(train PRIVATE penstock::penstock m)
add_executable(version version.cpp)
target_compile_features(version PRIVATE cxx_std_17)
target_link_libraries(version PRIVATE penstock::penstock)
"""
VERSION = """
#include <cstdio>
#include <penstock/penstock.hpp>
int main() { std::puts(penstock_build_info()); }
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} exited with {done.returncode}:\n"
                 f"{done.stdout}{done.stderr}")
    return done.stdout


def install(options, root):
    """The prefix, at another place than it was installed to."""
    first, prefix = root / "first", root / "prefix"
    run(options.cmake, "--install", options.build, "--prefix", first)
    first.rename(prefix)
    for name in ("bin/penstock", "include/penstock/penstock.h", "include/penstock/penstock.hpp",
                 f"{options.libdir}/libpenstock.so",
                 f"{options.libdir}/cmake/penstock/penstockConfig.cmake",
                 f"{options.libdir}/cmake/penstock/penstockConfigVersion.cmake",
                 f"{options.libdir}/pkgconfig/penstock.pc"):
        if not (prefix / name).exists():
            sys.exit(f"{name} was not installed")
    for path in prefix.rglob("*.cmake"):
        if str(SOURCES) in path.read_text() or str(first) in path.read_text():
            sys.exit(f"{path} names a directory of the build or of the first prefix")
    return prefix


def write_consumer(directory):
    directory.mkdir()
    shutil.copy(SOURCES / "examples/01_c_train/main.c", directory)
    (directory / "version.cpp").write_text(VERSION)
    (directory / "CMakeLists.txt").write_text(CONSUMER)


def check_programs(train, version, store, expected, environment):
    if json.loads(run(version, env=environment))["version"] != expected:
        sys.exit(f"{version} is not linked with version {expected}")
    run(train, store, env=environment)
    if "resumed after step 300" not in run(train, store, env=environment):
        sys.exit(f"the second run of {train} does not resume")


def through_cmake(options, consumer, prefix, root, expected):
    build = root / "build"
    c_compiler, cxx_compiler = options.compilers
    run(options.cmake, "-G", options.generator, "-S", consumer, "-B", build,
        f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_C_COMPILER={c_compiler}",
        f"-DCMAKE_CXX_COMPILER={cxx_compiler}")
    run(options.cmake, "--build", build)
    check_programs(build / "train", build / "version", root / "store-1", expected, os.environ)


def through_pkg_config(options, consumer, prefix, root, expected):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(prefix / options.libdir / "pkgconfig"),
                       LD_LIBRARY_PATH=str(prefix / options.libdir))
    flags = run("pkg-config", "--cflags", "--libs", "penstock", env=environment).split()
    for compiler, source, program in zip(options.compilers, ("main.c", "version.cpp"),
                                         ("train", "version")):
        run(compiler, consumer / source, *flags, "-lm", "-o", root / program)
    check_programs(root / "train", root / "version", root / "store-2", expected, environment)


def main():
    parser = argparse.ArgumentParser()
    for name in ("cmake", "build", "generator", "libdir", "sanitizers"):
        parser.add_argument("--" + name)
    parser.add_argument("--compilers", nargs=2)
    options = parser.parse_args()
    if options.sanitizers:
        print(f"skipped: a library built with -fsanitize={options.sanitizers} needs programs that "
              "are built so, too; the release preset runs this test")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="penstock-installed-") as directory:
        root = pathlib.Path(directory)
        prefix = install(options, root)
        expected = json.loads(run(prefix / "bin/penstock", "version", "--json"))["version"]
        consumer = root / "consumer"
        write_consumer(consumer)
        through_cmake(options, consumer, prefix, root, expected)
        through_pkg_config(options, consumer, prefix, root, expected)


if __name__ == "__main__":
    main()
