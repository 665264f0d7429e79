"""Tests of the runner, with test binaries that are scripts: `python3 -m unittest runner.tests`."""

import os
import stat
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from . import changes, processes, sources, verdict
from .libtest import Binary, Test
from .others import Python
from .processes import ROOT

# A test binary whose test NAME does what the file NAME says: its first line is for the first run,
# and so on; the last line remains.
SCRIPT = """#!/usr/bin/env bash
cd "$(dirname "$0")" || exit 3
if [ "$3" = --list ] || [ "$1" = --list ]; then for name in test-*; do echo "$name: test"; done; exit; fi
name=$2
line=$(head -n 1 "$name")
[ "$(wc -l <"$name")" = 1 ] || sed -i 1d "$name"
eval "$line" || exit
echo "test result: ok. 1 passed; 0 failed;"
"""


class Repetition(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        script = self.folder / "binary"
        script.write_text(SCRIPT)
        script.chmod(script.stat().st_mode | stat.S_IEXEC)
        self.binary = Binary("tests", "made_up", str(script), self.folder)

    def run_all(self, **lines):
        """Runs each test once and repeats those that failed; returns the tests and the report."""
        for name, text in lines.items():
            (self.folder / f"test-{name}").write_text(text.replace(";;", "\n") + "\n")
        tests = {test.name.removeprefix("test-"): test.run() for test in self.binary.list([])}
        lines = []
        failed = [test for test in tests.values() if not test.passed]
        self.flaky = verdict.repeat(failed, lines.append)
        self.red = verdict.is_red(failed, self.flaky)
        return tests, lines

    def test_a_test_that_passes_runs_once(self):
        tests, lines = self.run_all(good="true", skip="echo 'skipped: needs a radio'")
        self.assertEqual([(test.runs, test.passed) for test in tests.values()], [(1, True)] * 2)
        self.assertEqual((tests["good"].skipped, tests["skip"].skipped), ("", "needs a radio"))
        self.assertEqual((lines, self.flaky, self.red), ([], [], False))

    def test_inconclusive_experiments_are_counted(self):
        tests, _ = self.run_all(good="echo 'inconclusive: a'; echo 'inconclusive: b'")
        self.assertEqual((tests["good"].passed, tests["good"].inconclusive), (True, 2))

    def test_a_test_that_passes_later_is_flaky_and_keeps_its_first_text(self):
        tests, _ = self.run_all(once="echo first; false;;true", twice="false;;false;;true")
        self.assertEqual({test.name: (test.failures, test.runs) for test in self.flaky},
                         {"test-once": (1, 2), "test-twice": (2, 3)})
        self.assertIn("first", tests["once"].texts[0])
        self.assertEqual(verdict.flaky_line(tests["once"]), "flaky: tests: made_up: test-once (1 of 2)")
        self.assertFalse(self.red)

    def test_a_test_that_always_fails_is_red_after_three_runs(self):
        tests, lines = self.run_all(bad="false")
        self.assertEqual((tests["bad"].runs, self.flaky, self.red), (3, [], True))
        self.assertEqual(lines, ["failed: tests: made_up: test-bad (3 of 3)"])

    def test_more_than_three_flaky_tests_are_red(self):
        self.run_all(a="false;;true", b="false;;true", c="false;;true")
        self.assertFalse(self.red)
        self.run_all(a="false;;true", b="false;;true", c="false;;true", d="false;;true")
        self.assertEqual((len(self.flaky), self.red), (4, True))

    def test_faults_are_never_repeated(self):
        for text in [f"echo '{verdict.FAULT}wrong bytes'; false;;true",
                     "echo \"thread 'main' panicked at crates/unit/src/lib.rs:1:5:\"; false;;true"]:
            tests, lines = self.run_all(bad=text)
            self.assertEqual((tests["bad"].runs, self.red), (1, True), text)
            self.assertTrue(lines[0].startswith("fault: "), lines)

    def test_a_fault_in_a_repetition_ends_it(self):
        tests, _ = self.run_all(bad=f"false;;echo '{verdict.FAULT}lost bytes'; false;;true")
        self.assertEqual((tests["bad"].runs, self.red), (2, True))

    def test_a_process_that_is_left_over_is_a_fault_and_is_ended(self):
        with mock.patch("runner.processes.GRACE", 0.2):
            tests, lines = self.run_all(bad="setsid sleep 1000 >/dev/null 2>&1 & true;;true")
        self.assertEqual((tests["bad"].runs, self.red), (1, True))
        self.assertIn("sleep 1000", lines[0])
        self.assertEqual(processes.belonging(processes.OURS, -1), {})

    def test_a_test_in_a_new_file_must_pass_each_time(self):
        added = [self.folder / "module.rs", self.folder / "another.rs"]
        with mock.patch.object(sources, "added_files", lambda: dict(zip(added, ["fn bad() {", "fn good() {"]))):
            test = Test(self.binary, "module::bad")
            test.record(False, "")
            self.assertIn("new test", verdict.fault(test))
            other = Test(self.binary, "module::good")
            other.record(False, "")
            self.assertEqual(verdict.fault(other), "")

    def test_many_failures_are_not_repeated_for_ever(self):
        names = {f"t{number}": "false;;true" for number in range(verdict.MAX_REPEATED + 3)}
        tests, lines = self.run_all(**names)
        self.assertEqual(sum(test.runs == 1 for test in tests.values()), 3)
        self.assertEqual((len(lines), self.red), (3, True))


    def test_a_panic_that_a_test_does_not_notice_is_a_fault(self):
        tests, _ = self.run_all(bad="echo 'panicked at crates/unit/src/lib.rs:1:5:'")
        self.assertEqual((tests["bad"].runs, self.red), (1, True))

    def test_a_test_that_hangs_fails_and_leaves_nothing(self):
        with mock.patch("runner.libtest.LIMIT", 0.3):
            tests, _ = self.run_all(bad="sleep 1000 & setsid sleep 1000 & wait")
        self.assertEqual((tests["bad"].passed, self.red, verdict.fault(tests["bad"])), (False, True, ""))
        self.assertIn("ended after 0.3 s", tests["bad"].texts[0])
        self.assertEqual(processes.belonging(processes.OURS, -1), {})

    def test_a_repetition_that_is_skipped_is_no_success(self):
        tests, _ = self.run_all(bad="false;;echo 'test a ... skipped: needs a radio'")
        self.assertEqual((tests["bad"].passed, self.flaky, self.red), (False, [], True))


class Output(unittest.TestCase):
    def test_what_the_tests_that_were_read_do_not_explain_is_a_failure(self):
        summary = "test result: FAILED. 0 passed; {} failed; 0 ignored; 0 measured; 0 filtered out"
        failed = "test a ... FAILED <0.1s>\n"
        for status, text, left in [
            (-6, failed, []),
            (None, failed, []),
            (101, failed + summary.format(2), []),
            (0, "test a ... ok\n", []),
            (101, failed + summary.format(1), ["sleep 1000"]),
        ]:
            tests = Binary("net", "net", "x", ROOT).read(status, text, left)
            self.assertEqual(tests[-1].name, "(the whole binary)", text)
            self.assertNotEqual(verdict.fault(tests[-1]), "")
        self.assertEqual(len(Binary("net", "net", "x", ROOT).read(101, failed + summary.format(1))), 1)

    def test_examples_of_one_file_are_apart(self):
        text = "test a.rs - one (line 1) ... ok\ntest a.rs - two (line 9) - should panic ... ok\n" \
               "test result: ok. 2 passed; 0 failed; 0 ignored\n"
        self.assertEqual(len(Binary("net", "net", "x", ROOT).read(0, text)), 2)

    def test_the_output_of_many_tests_is_read(self):
        text = (
            "\nrunning 4 tests\ntest a::one ... ok <0.100s>\ntest a::two ... FAILED <2.000s>\n"
            "test a::three ... ignored\ntest four ... ok <0.000s>\n\nsuccesses:\n\n"
            "---- four stdout ----\nskipped: needs root\n\n\nsuccesses:\n    a::one\n    four\n\n"
            "failures:\n\n---- a::two stdout ----\nit is wrong\nreally\n\n\nfailures:\n    a::two\n\n"
            "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 2.10s\n"
        )
        tests = {test.name: test for test in Binary("net", "net", "x", ROOT).read(101, text)}
        self.assertEqual(list(tests), ["a::one", "a::two", "four"])
        self.assertEqual((tests["a::one"].passed, tests["a::one"].seconds), (True, 0.1))
        self.assertEqual((tests["a::two"].passed, tests["a::two"].texts[0].strip()), (False, "it is wrong\nreally"))
        self.assertEqual(tests["four"].skipped, "needs root")

    def test_a_binary_that_is_killed_is_a_failure(self):
        tests = Binary("net", "net", "x", ROOT).read(-9, "running 2 tests\ntest a ... ok <0.1s>\n")
        self.assertEqual([test.passed for test in tests], [True, False])
        self.assertEqual(verdict.fault(tests[1]), "it cannot be repeated")

    def test_the_output_of_pytest_is_read(self):
        text = (
            "..F.s [100%]\n=== slowest 10 durations ===\n2.01s call     tests/test_command.py::test_figures\n"
            "=== short test summary info ===\nFAILED tests/test_stitch.py::test_cut - AssertionError: no\n"
            "1 failed, 3 passed, 1 skipped in 31.64s\na late line\n"
        )
        tests = Python().read(1, text)
        self.assertEqual([test.name for test in tests if not test.passed], ["tests/test_stitch.py::test_cut"])
        self.assertEqual(sum(test.passed and not test.skipped for test in tests), 3)
        self.assertEqual(sum(bool(test.skipped) for test in tests), 1)
        self.assertEqual(max(test.seconds for test in tests), 2.01)

    def test_what_the_failed_tests_do_not_explain_is_a_fault(self):
        failed = "FAILED tests/test_cut.py::test_a\n1 failed, 3 passed in 3.64s\n"
        collection = "ERROR tests/test_cut.py\n! Interrupted: 1 error during collection !\n1 error in 3.64s\n"
        for status, text, left, count in [
            (1, failed, [], 0), (None, failed, [], 1), (1, failed, ["ray"], 1), (2, collection, [], 1), (0, "", [], 1),
        ]:
            tests = Python().read(status, text, left)
            whole = [test for test in tests if test.name == "(the whole package)" and not test.repeatable]
            self.assertEqual(len(whole), count, text)


class Sources(unittest.TestCase):
    def test_a_line_of_the_product_is_told_from_one_of_its_tests(self):
        self.assertTrue(sources.is_product("crates/unit/src/lib.rs", 1))
        self.assertFalse(sources.is_product("crates/link/src/pipe/tests.rs", 1))
        self.assertFalse(sources.is_product("crates/rig/src/process.rs", 1))
        self.assertFalse(sources.is_product("tests/tests/bond/main.rs", 1))
        path = ROOT / "crates/rig/src/process.rs"
        first = next(number for number, line in enumerate(path.read_text().splitlines(), 1) if line == "#[cfg(test)]")
        self.assertEqual(sources._first_test_line("crates/rig/src/process.rs"), first)

    def test_remarks_stand_above_tests(self):
        slow = [name for kind, name in sources.remarks() if kind == "Slow"]
        self.assertIn("every_scheduler_brings_the_right_file", slow)


class Changes(unittest.TestCase):
    PACKAGES = {
        "unit": ("crates/unit", set()),
        "model": ("crates/model", {"unit"}),
        "net": ("crates/net", {"model", "unit"}),
        "cli": ("crates/cli", {"net"}),
        "tests": ("tests", {"net"}),
    }

    def scope(self, *files):
        readers = {"scenarios/a.toml": ["crates/unit/tests/shipped.rs"]}
        return changes.scope(files, self.PACKAGES, lambda file: readers.get(file, []))

    def test_a_package_affects_those_that_depend_on_it(self):
        scope = self.scope("crates/model/src/radio.rs")
        self.assertEqual((scope.changed, scope.affected), ({"model"}, {"model", "net", "cli", "tests"}))
        self.assertEqual((scope.families, scope.reached), (set(), {"radio", "lab"}))
        self.assertEqual(self.scope("docs/get.md").affected, set())

    def test_a_test_in_namespaces_runs_if_its_family_changed(self):
        moved = "tests/tests/moved/left.rs"
        scope = self.scope("tests/tests/get/answers.rs", "tests/tests/demo.rs", "crates/cli/src/get/options.rs", moved)
        self.assertEqual((scope.families, scope.reached), ({"get", "demo"}, {"commands"}))
        self.assertEqual(self.scope("crates/unit/src/lib.rs").reached, set(changes.FAMILIES))
        self.assertEqual(self.scope("tests/src/lab.rs").reached, set(changes.FAMILIES))
        self.assertEqual(scope.affected, {"tests", "cli"})

    def test_a_manifest_affects_everything(self):
        self.assertEqual(self.scope("Cargo.lock").affected, set(self.PACKAGES))
        self.assertTrue(self.scope("python/manyways/flows.py").python)
        self.assertEqual(self.scope("scenarios/a.toml").changed, {"unit"})
        self.assertIn("crates/trace/tests/shipped_scenarios.rs", changes.readers("scenarios/traces/wifi-leaving.mbps"))

    def test_the_families_and_folders_exist(self):
        for family, folders in changes.FAMILIES.items():
            self.assertTrue(list((ROOT / "tests/tests").glob(f"{family}*")), family)
            for folder in folders:
                self.assertTrue(list(ROOT.glob(f"{folder}*")), folder)

    def test_the_real_workspace_is_read(self):
        workspace = changes.workspace()
        packages = changes.dependents(workspace)
        self.assertLess(changes.tested(workspace), set(packages))
        self.assertEqual(packages["unit"], ("crates/unit", set()))
        self.assertIn("net", packages["cli"][1])


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main()
