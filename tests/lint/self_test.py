#!/usr/bin/env python3
"""Each rule of the linter, on a small tree that keeps to it and on one that breaks it.

A rule that cannot fail is worse than none: every case plants one fault in the clean tree and
expects the rule to name that place and no other.
"""
import contextlib
import io
import os
import pathlib
import tempfile
import unittest

import lint

# Near misses included: banned words in comments and strings, short functions beside each other.
CLEAN = {
    "src/base/result.hpp": '#pragma once\n\n/// Failures as values; nothing here calls abort().\n',
    "src/base/CMakeLists.txt": "add_library(base text.cpp)\n",
    "src/base/text.cpp": """#include "base/result.hpp"

#include <new>

namespace penstock {

// printf("...") and new int are words here.
struct Text {
  Text(const Text&) = delete;
  Text() : bytes_{1}, count_{2} { call("abort(); throw; assert(0)"); }
  int bytes_;
  int count_;
};
/* std::cout << "no" */
const char* raw = R"(using namespace std; new Text)";
static_assert(sizeof(int) == 4);
int million() { return 1'000'000; }
auto one = std::unique_ptr<Text>(new Text());
std::unique_ptr<Text> two(new Text());
void* slot = ::operator new(8);  // lint: allow new because this line shows how to

}  // namespace penstock
""",
    "io/section.hpp": "#pragma once\n\n/// Lengths of sections.\n",
    "io/queue.hpp": '#pragma once\n\n/// The queue.\n#include "base/result.hpp"\n',
    "src/plan/CMakeLists.txt": "penstock_library(plan SOURCES plan.cpp)\n",
    "src/plan/plan.cpp": '#include "base/result.hpp"\n#include "io/section.hpp"\n',
    "kernels/math/adamw.hpp": "#pragma once\n\n/// The formula; _mm256_rcp_ps is not used.\n",
    "kernels/cpu/step.hpp": "#pragma once\n\n/// One step.\n#include <immintrin.h>\n",
    "src/cli/CMakeLists.txt": "add_executable(cli main.cpp)\n",
    "src/cli/main.cpp": '#include "engine/engine.hpp"\nint main() { fmt::print("text"); }\n',
    "src/engine/engine.hpp": "#pragma once\n\n/// The engine.\n",
    "include/penstock/penstock.h": "#pragma once\n\n/** The C API. */\n",
    "examples/01/CMakeLists.txt": "add_executable(example main.cpp)\n",
    "examples/01/main.cpp": "#include <penstock/penstock.h>\n",
    "tests/base/CMakeLists.txt": "penstock_test(t SOURCES text_test.cpp LABELS unit sim)\n",
    "tests/base/text_test.cpp": '#include "engine/engine.hpp"\n',
    "tests/io/CMakeLists.txt": "foreach(unit IN ITEMS queue store)\n  t(${unit}_test.cpp)\n",
    "tests/io/queue_test.cpp": "\n",
    "tests/io/extra.cmake": "t(fault_test.cpp)\n",
    "tests/io/fault_test.cpp": "\n",
    "README.md": "[text](src/base/text.cpp) [out](https://example.org) [here](#top)\n",
    "build/release/junk.cpp": "abort();\n",
    ".clang-format": "BasedOnStyle: Google\nColumnLimit: 100\nIncludeBlocks: Preserve\n",
    "scripts/check": "#!/usr/bin/env bash\nset -e\nprintf '%s\\n' \"$1\"\n",
}


def function_of(lines):
    return "void long_one() {\n" + "  step();\n" * (lines - 2) + "}\n"


# (rule, file, content, what the message must hold). Content replaces or adds the file.
FAULTS = [
    ("includes", "io/queue.hpp", '#pragma once\n/// Q.\n#include "engine/engine.hpp"\n',
     "io/queue.hpp:3: io may not include engine"),
    ("includes", "io/queue.hpp", '#pragma once\n/// Q.\n#include "kernels/cpu/step.hpp"\n',
     "io may not include kernels"),
    ("includes", "kernels/cpu/step.hpp", '#pragma once\n/// S.\n#include "io/queue.hpp"\n',
     "kernels may not include io"),
    ("includes", "src/plan/plan.cpp", '#include "io/queue.hpp"\n', "plan may not include io"),
    ("includes", "src/base/result.hpp", '#pragma once\n/// R.\n#include "io/section.hpp"\n',
     "base may not include io"),
    ("includes", "src/engine/engine.hpp", '#pragma once\n/// E.\n# include "capi/handle.hpp"\n',
     "engine may not include capi"),
    ("includes", "src/engine/engine.hpp", '#pragma once\n/// E.\n#include <penstock/penstock.h>\n',
     "engine may not include include"),
    ("includes", "examples/01/main.cpp", '#include "base/result.hpp"\n',
     "examples may not include base"),
    ("includes", "src/plan/plan.cpp", '#include "plan.hpp"\n', "names no directory"),
    ("includes", "src/plan/plan.cpp", '#include "elsewhere/plan.hpp"\n', "no directory of the"),
    ("size", "src/base/text.cpp", "// x\n" * 701, "701 lines"),
    ("size", "src/base/text.cpp", function_of(81), "text.cpp:1: a function of 81 lines"),
    ("size", "src/base/text.cpp", "struct A {\n  A() : b_{1} {\n" + "    f();\n" * 90 + "  }\n};\n",
     "text.cpp:2: a function of 92 lines"),
    ("size", "src/base/text.cpp", "namespace a {\nnamespace {\n" + function_of(90) + "}\n}\n",
     "text.cpp:3: a function of 90 lines"),
    ("size", "tests/base/text_test.cpp", "TEST(A, B) {\n" + "  f({1, 2});\n" * 85 + "}\n",
     "a function of 87 lines"),
    ("size", "src/base/CMakeLists.txt", "# text.cpp" + "x" * 91 + "\n", "101 columns"),
    ("size", "scripts/check", "#!/usr/bin/env bash\n# " + "x" * 99 + "\n", "101 columns"),
    ("banned", "src/base/text.cpp", "void f() { std::abort(); }\n", "return a Status"),
    ("banned", "src/base/text.cpp", "\n\nint f() { exit(1); }\n", "text.cpp:3:"),
    ("banned", "io/queue.hpp", "void f() { assert(true); }\n", "static_assert"),
    ("banned", "kernels/cpu/step.hpp", 'void f() { std::printf("x"); }\n', "does not print"),
    ("banned", "src/base/text.cpp", "void f() { std::cout << 1; }\n", "does not print"),
    ("banned", "src/base/text.cpp", "auto* p = new int(3);\n", "make_unique"),
    ("banned", "src/base/text.cpp", "auto* p = new (std::nothrow) int;\n", "make_unique"),
    ("banned", "src/base/text.cpp", "void f(int* p) { delete p; }\n", "give it an owner"),
    ("banned", "src/base/text.cpp", "using namespace std;\n", "name what is used"),
    ("banned", "src/base/text.cpp", "void f() { throw 1; }\n", "return a Status"),
    ("banned", "src/base/text.cpp", "auto* p = new int;  // lint: allow new\n", "make_unique"),
    ("banned", "src/base/text.cpp", "void f() { _exit(1); }\n", "return a Status"),
    ("banned", "src/cli/main.cpp", "int main() { exit(2); }\n", "return a Status"),
    ("cmake", "src/base/forgotten.cpp", "\n", "forgotten.cpp:1: listed in no CMakeLists.txt"),
    ("cmake", "src/base/CMakeLists.txt", "add_library(base context.cpp) # text.cpp\n",
     "text.cpp:1: listed in no"),
    ("cmake", "tests/io/drive_test.cpp", "\n", "drive_test.cpp:1: listed in no"),
    ("headers", "src/base/result.hpp", "\n#include <new>\n", "#pragma once"),
    ("headers", "src/base/result.hpp", "#pragma once\n\n#include <new>\n", "contract"),
    ("words", "README.md", "run " + "/".join(["", "home", "me", "penstock"]) + "\n",
     "README.md:1:"),
    ("words", "io/queue.hpp", "#pragma once\n/// See DESIGN section" " 5.\n", "io/queue.hpp:2:"),
    ("kernels", "kernels/math/adamw.hpp", "#pragma once\n/// A.\n#include <immintrin.h>\n",
     "does not include immintrin.h"),
    ("kernels", "kernels/math/adamw.hpp", "#pragma once\n/// A.\n#include <hwy/highway.h>\n",
     "does not include hwy"),
    ("kernels", "kernels/cpu/step.hpp", "auto y = _mm512_rsqrt14_ps(x);\n", "other bits"),
    ("kernels", "kernels/cpu/step.hpp", "auto y = _mm512_mask_rcp14_ps(a, m, x);\n",
     "other bits"),
    ("labels", "tests/base/CMakeLists.txt", "penstock_test(t SOURCES text_test.cpp LABELS fast)\n",
     "unknown label 'fast'"),
    ("labels", "tests/base/CMakeLists.txt",
     'penstock_test(t SOURCES text_test.cpp\n  LABELS "unit;odd" TIMEOUT 9)\n',
     "CMakeLists.txt:2: unknown label 'odd'"),
    ("links", "README.md", "see [it](docs/none.md#part)\n", "docs/none.md#part leads nowhere"),
    ("format", "src/base/text.cpp", "int  f( ) {return 1 ;}\n", "clang-format-14 -i"),
    ("shell", "scripts/check", "#!/usr/bin/env bash\nrm $1\n", "SC2086"),
]


class LintTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)

    def write(self, files):
        for path, text in files.items():
            place = self.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")

    def run_rule(self, rule):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            status = lint.main(["--root", os.fspath(self.root), rule])
        return status, output.getvalue()

    def test_clean_tree_passes_every_rule(self):
        self.write(CLEAN)
        for rule in lint.RULES:
            with self.subTest(rule=rule):
                status, output = self.run_rule(rule)
                self.assertIn(status, (0, 77), output)

    def test_every_rule_has_a_fault(self):
        self.assertEqual(set(lint.RULES), {rule for rule, *_ in FAULTS})

    def test_planted_faults_are_named(self):
        for rule, path, text, expected in FAULTS:
            with self.subTest(rule=rule, path=path, expected=expected):
                self.write(CLEAN)
                self.write({path: text})
                status, output = self.run_rule(rule)
                (self.root / path).unlink()
                if status == 77:
                    self.skipTest(output)
                self.assertEqual(status, 1, output)
                self.assertIn(expected, output)
                self.assertEqual(len(output.strip().splitlines()), 1, output)

    def test_long_code_with_a_reason_passes(self):
        self.write(CLEAN)
        self.write({"src/base/text.cpp": "// lint: long because it is a table\n" + function_of(90)})
        self.assertEqual(self.run_rule("size")[0], 0)

    def test_warnings_do_not_fail(self):
        self.write(CLEAN)
        self.write({"src/base/text.cpp": function_of(70)})
        status, output = self.run_rule("size")
        self.assertEqual(status, 0)
        self.assertIn("warning: a function of 70 lines", output)


if __name__ == "__main__":
    unittest.main()
