"""Tests that are no test binaries: the examples of the documentation, and the Python package."""

import re

from . import verdict
from .libtest import LIMIT, Binary, Test
from .processes import ROOT, execute

SUMMARY = re.compile(r"\d+ (passed|failed|skipped|error).* in [0-9.]+s")
COUNT = re.compile(r"(\d+) (passed|skipped)\b")


class Documentation(Binary):
    """The examples of the documentation."""

    def __init__(self):
        super().__init__("documentation", "documentation", None, ROOT)

    def run(self, filters):
        command = ["cargo", "test", "--workspace", "--doc", "--no-fail-fast", "--", *filters]
        status, text, _, left = execute(command, LIMIT, self.name, apart=True)
        found = self.read(status, text, left)
        for test in found:
            # Nothing in them depends on the machine.
            test.repeatable = False
        return found


class PythonTest(Test):
    """A test of the Python package."""

    def run(self):
        command = ["scripts/python-test", self.name.removeprefix("tests/")]
        status, text, self.seconds, left = execute(command, LIMIT, self.title)
        if left:
            self.faults.append(f"processes are left over: {'; '.join(left)}")
        self.record(status == 0 and not self.faults, text)
        return self


class Python(Binary):
    """The tests of the Python package, on an installed wheel."""

    def __init__(self):
        super().__init__("python", "python", None, ROOT)
        self.group = "python"

    def run(self):
        """Runs all tests; returns those with a name in the output, and adds the others as one."""
        command = ["scripts/python-test", "--durations=10", "--durations-min=1", "-rfEs"]
        # In a clean clone it also installs packages and builds the wheel, beside other tests.
        status, text, _, left = execute(command, 3 * LIMIT, self.name)
        return self.read(status, text, left)

    def read(self, status, text, left=()):
        """Returns the tests from the output of pytest; those without a name are numbered. What is not
        explained by them is a test of its own."""
        # Other programs may write after it.
        summary = next((line for line in reversed(text.splitlines()) if SUMMARY.search(line)), "")
        counts = {word: int(number) for number, word in COUNT.findall(summary)}
        found = []
        for name in dict.fromkeys(re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)):
            found.append(PythonTest(self, name))
            found[-1].record(False, text)
        # With status 1 tests have failed. After an error before them, pytest runs no test at all.
        explained = status == 0 and counts or status == 1 and found and "Interrupted: " not in text
        if left or not explained:
            reason = f"{verdict.FAULT}processes are left over: {'; '.join(left)}" if left else f"status {status}"
            found.append(Test(self, "(the whole package)", repeatable=False))
            found[-1].record(False, f"{text}\n{reason}")
        for word, number in counts.items():
            for index in range(number):
                test = Test(self, f"({word} {index + 1})", skipped="pytest" if word == "skipped" else "")
                test.passed, test.runs = True, 1
                found.append(test)
        for took, name in re.findall(r"^([0-9.]+)s call +(\S+)", text, re.MULTILINE):
            test = next((test for test in found if test.name == name), None)
            if test is None:
                test = next((test for test in found if test.name.startswith("(passed")), None)
                if test is None:
                    continue
                test.name = name
            test.seconds = float(took)
        return found
