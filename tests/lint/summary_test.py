#!/usr/bin/env python3
"""scripts/ctest-summary on small JUnit files: what counts as passed, failed and skipped."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SUMMARY = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "ctest-summary"
SKIP = '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'


def case(name, status, inside="", output=""):
    return (f'<testcase name="{name}" status="{status}">{inside}'
            f"<system-out>{output}</system-out></testcase>")


class SummaryTest(unittest.TestCase):
    def summary(self, *runs):
        with tempfile.TemporaryDirectory() as directory:
            arguments = []
            for number, cases in enumerate(runs):
                path = pathlib.Path(directory) / f"{number}.xml"
                if cases is not None:
                    path.write_text(f"<testsuite>{''.join(cases)}</testsuite>", encoding="utf-8")
                arguments.append(f"run{number}={path}")
            done = subprocess.run([sys.executable, SUMMARY, *arguments], text=True, check=False,
                                  stdout=subprocess.PIPE)
        lines = done.stdout.splitlines()
        return done.returncode, lines[-1], done.stdout

    def test_counts_over_all_runs(self):
        status, last, _ = self.summary([case("a", "run"), case("b", "run")], [case("a", "run")])
        self.assertEqual((status, last), (0, "3 passed, 0 failed, 0 skipped"))

    def test_failures_fail(self):
        status, last, text = self.summary([case("a", "run"), case("b", "fail")])
        self.assertEqual((status, last), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("run0: b", text)

    def test_skips_say_why(self):
        said = "/x.cpp:3: Skipped\nno AVX-512;\n use another CPU\n[  SKIPPED ] x (0 ms)\n"
        status, last, text = self.summary([case("x", "notrun", SKIP, said), case("y", "run")])
        self.assertEqual((status, last), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("x (run0): no AVX-512; use another CPU", text)

    def test_sanitizer_report_in_a_skipped_test_fails(self):
        said = "[  SKIPPED ] x (0 ms)\n==1==ERROR: LeakSanitizer: detected memory leaks\n"
        status, last, _ = self.summary([case("x", "notrun", SKIP, said)])
        self.assertEqual((status, last), (1, "0 passed, 1 failed, 0 skipped"))

    def test_program_that_was_not_built_fails(self):
        inside = '<skipped message="Unable to find executable"/>'
        status, last, _ = self.summary([case("x_NOT_BUILT", "notrun", inside)])
        self.assertEqual((status, last), (1, "0 passed, 1 failed, 0 skipped"))

    def test_missing_and_empty_results_fail(self):
        self.assertEqual(self.summary(None)[:2], (1, "0 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.summary([])[:2], (1, "0 passed, 1 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
