"""Which failures are faults, and which come from the machine: repetition of failed tests."""

import re

from . import sources

# `manyways_rig::fault` prints this word where a failure is a fault, however busy the machine is.
FAULT = "manyways-fault: "
PANIC = re.compile(r"panicked at ((?:\./)?(?:crates|tests|bench)/[^:\s]+):(\d+)")
# A run with more flaky tests fails.
MAX_FLAKY = 3
# Runs after the first failure.
REPETITIONS = 2
# With more failed tests the reason is not the machine, and repeating all of them would take long.
MAX_REPEATED = 12


def reported(text):
    """Returns the fault that the output of a test reports; empty if there is none."""
    for line in text.splitlines():
        if FAULT in line:
            return line.partition(FAULT)[2].strip()
        match = PANIC.search(line)
        if match and sources.is_product(match[1], int(match[2])):
            return f"a panic at {match[1]}:{match[2]}"
    return ""


def fault(test):
    """Returns why a failed test is not repeated; empty if it is."""
    if test.faults:
        return test.faults[0]
    if reason := reported("\n".join(test.texts)):
        return reason
    if not test.repeatable:
        return "it cannot be repeated"
    if sources.is_new(test):
        return "a new test must pass each time"
    return ""


def repeat(failed, report):
    """Repeats failed tests, each alone; returns those that then pass. `report` gets a line each."""
    flaky = []
    for test in failed[:MAX_REPEATED]:
        if reason := fault(test):
            report(f"fault: {test.title} ({reason})")
            continue
        while not test.passed and test.runs <= REPETITIONS:
            test.run()
            if test.passed and test.skipped:
                # Of a test that was not run nothing is known.
                test.passed = False
                break
            if reason := fault(test) if not test.passed else "":
                report(f"fault: {test.title} ({reason})")
                break
        if test.passed:
            flaky.append(test)
        elif not fault(test):
            report(f"failed: {test.title} ({test.failures} of {test.runs})")
    for test in failed[MAX_REPEATED:]:
        report(f"failed: {test.title} (not repeated: {len(failed)} tests failed)")
    return flaky


def flaky_line(test):
    return f"flaky: {test.title} ({test.failures} of {test.runs})"


def is_red(failed, flaky):
    """Whether a run fails: a test that did not pass in the end, or too many that did."""
    return any(not test.passed for test in failed) or len(flaky) > MAX_FLAKY
