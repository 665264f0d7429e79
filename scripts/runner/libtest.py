"""Test binaries of Cargo: how they are built and run, and what their output says."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from . import verdict
from .processes import ROOT, execute

PURE = {"unit", "trace", "record", "link", "proto", "wire", "model", "report", "flows"}
# Test binaries of tests/ that need no namespaces.
UNPRIVILEGED = {"commands"}
# A binary or a test that takes longer hangs.
LIMIT = 11 * 60

RESULT = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)(?:, .*?)?(?: <([0-9.]+)s>)?$")
OUTPUT = re.compile(r"^---- (.+) stdout ----$")
SUMMARY = re.compile(r"^test result: .*? (\d+) passed; (\d+) failed;", re.MULTILINE)
# Of `needs!`; without capture it follows the name of the test.
SKIPPED = re.compile(r"(?:^|\.\.\. )skipped: (.*)$", re.MULTILINE)
# Of `conclusive`, before it repeats an experiment.
INCONCLUSIVE = re.compile(r"^inconclusive: ", re.MULTILINE)
IGNORED = re.compile(r"^test .* \.\.\. ignored", re.MULTILINE)


@dataclass
class Test:
    """One test, and the results of its runs."""

    binary: "Binary"
    name: str
    passed: bool = False
    skipped: str = ""
    seconds: float = 0.0
    # Output of each run that failed.
    texts: list = field(default_factory=list)
    # What the runner itself found: processes that remained.
    faults: list = field(default_factory=list)
    repeatable: bool = True
    # Number of runs, and how many of them failed.
    runs: int = 0
    failures: int = 0
    # Number of its experiments, in the last run, that a busy machine made inconclusive.
    inconclusive: int = 0

    @property
    def title(self):
        return f"{self.binary.name}: {self.name}"

    @property
    def function(self):
        return self.name.rpartition("::")[2]

    def run(self):
        """Runs this test alone in a process."""
        command = [self.binary.executable, "--exact", self.name, "--nocapture", "--test-threads=1"]
        environment = self.binary.environment()
        status, text, self.seconds, left = execute(command, LIMIT, self.title, environment, self.binary.folder)
        if left:
            self.faults.append(f"processes are left over: {'; '.join(left)}")
        elif status == 0 and (reason := verdict.reported(text)):
            # The test has not noticed it.
            self.faults.append(reason)
        summaries = SUMMARY.findall(text)
        if status == 0 and not (summaries and summaries[-1][0] == "1" or IGNORED.search(text)):
            self.faults.append("the output does not say that it ran")
        self.record(status == 0 and not self.faults, text)
        return self

    def record(self, passed, text):
        """Adds the result of one run."""
        self.runs += 1
        self.passed = passed
        self.inconclusive = len(INCONCLUSIVE.findall(text))
        if passed:
            reason = SKIPPED.search(text)
            self.skipped = reason[1] if reason else "ignored" if IGNORED.search(text) else ""
            return
        self.failures += 1
        self.texts.append(text)


class Binary:
    """A test binary."""

    def __init__(self, package, target, executable, folder):
        self.name = package if target in (package, f"manyways_{package}") else f"{package}: {target}"
        self.package, self.target, self.executable, self.folder = package, target, executable, Path(folder)
        if package in PURE:
            self.group = "pure"
        elif package == "tests" and target != "manyways_tests" and target not in UNPRIVILEGED:
            self.group = "root"
        else:
            self.group = "net"

    def environment(self):
        # The time of a test is an unstable option, which the first variable permits.
        return {**os.environ, "RUSTC_BOOTSTRAP": "1", "CARGO_MANIFEST_DIR": str(self.folder)}

    def list(self, filters):
        """Returns the tests that match a filter."""
        command = [self.executable, *filters, "--list", "--format", "terse"]
        listed = subprocess.run(
            command, cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if listed.returncode != 0:
            sys.exit(f"test: {self.executable} cannot list its tests\n{listed.stderr}")
        names = [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]
        return [Test(self, name) for name in names]

    def run(self, filters, threads):
        """Runs all tests that match in one process; returns them."""
        command = [self.executable, *filters, "--show-output", f"--test-threads={threads}"]
        command += ["-Z", "unstable-options", "--report-time"]
        status, text, _, left = execute(command, LIMIT, self.name, self.environment(), self.folder, apart=True)
        return self.read(status, text, left)

    def read(self, status, text, left=()):
        """Returns the tests with their results from the output of libtest. What is not explained by
        them is a test of its own: an abort, processes that are left over, output that cannot be read."""
        tests, output, current = {}, {}, None
        for line in text.splitlines():
            if match := RESULT.match(line):
                name, result, took = match.groups()
                if result != "ignored":
                    tests[name] = Test(self, name, seconds=float(took or 0))
                    tests[name].passed = result == "ok"
                current = None
            elif match := OUTPUT.match(line):
                current = match[1]
            elif line in ("successes:", "failures:"):
                current = None
            elif current:
                output.setdefault(current, []).append(line)
        for name, test in tests.items():
            test.record(test.passed, "\n".join(output.get(name, [])))
        found = list(tests.values())
        summaries = SUMMARY.findall(text)
        passed, failed = sum(int(one) for one, _ in summaries), sum(int(one) for _, one in summaries)
        read = (sum(test.passed for test in found), sum(not test.passed for test in found))
        reason = ""
        if left:
            reason = f"{verdict.FAULT}processes are left over: {'; '.join(left)}"
        elif status not in (0, 101) or (status == 101) != (failed > 0):
            reason = f"ended with status {status}"
        elif not summaries:
            reason = "reports no result"
        elif (passed, failed) != read:
            reason = f"reports {passed} passed and {failed} failed tests, of which {read} were read"
        if reason:
            ended = Test(self, "(the whole binary)", repeatable=False)
            ended.record(False, f"{text[-4000:]}\n{reason}")
            found.append(ended)
        return found


def build():
    """Builds everything at once, so that features are the same, and returns the test binaries."""
    command = ["cargo", "build", "--workspace", "--bins", "--tests", "--examples"]
    command.append("--message-format=json-render-diagnostics")
    built = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit("test: the build failed")
    binaries = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"]:
            folder = Path(message["manifest_path"]).parent
            binaries.append(Binary(folder.name, message["target"]["name"], message["executable"], folder))
    return binaries
