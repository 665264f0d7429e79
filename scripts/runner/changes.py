"""Which crates and test families a change touches: what `scripts/check` has to run."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .processes import ROOT

# Test families of tests/ by the sources that only they exercise. A change of another file touches all
# families, which take longer than a check may: `check` names them instead.
FAMILIES = {
    "bond": (
        "crates/net/src/bond", "crates/proto/src/bond", "crates/proto/src/mux", "crates/proto/src/sched",
        "crates/cli/src/bond",
    ),
    "bond_policy": ("crates/net/src/bond", "crates/proto/src/policy", "crates/cli/src/bond"),
    "flows": ("crates/flows", "crates/capture", "crates/cli/src/flows"),
    "get": ("crates/net/src/fetch", "crates/proto/src/fetch", "crates/proto/src/estimate", "crates/cli/src/get"),
    # The links of all families are those of the lab: its crates are not listed.
    "lab": ("crates/model/src/radio", "crates/cli/src/lab"),
    "radio": ("crates/net/src/radio", "crates/model/src/radio", "crates/cli/src/radio"),
    "commands": ("crates/cli/src",),
    "demo": ("crates/cli/src/demo",),
}

# Files on which every package depends.
EVERYTHING = ("Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "clippy.toml")


@dataclass
class Scope:
    """What a change touches."""

    # Packages with changed files, without "manyways-".
    changed: set = field(default_factory=set)
    # Those, and all that depend on them.
    affected: set = field(default_factory=set)
    # Test families of tests/ with a changed file of their own.
    families: set = field(default_factory=set)
    # Families that the change may break, too.
    reached: set = field(default_factory=set)
    python: bool = False
    # Whether the runner itself or a manifest changed, so that everything is affected.
    everything: bool = False


def changed_files(base):
    """Returns the files that differ from a commit, also those that are not committed. Of a file that
    was moved, both names."""
    differ = ["git", "diff", "--name-only", "--no-renames", "-z", base]
    untracked = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    listed = (
        subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for words in (differ, untracked)
    )
    return sorted({file for text in listed for file in text.split("\0") if file})


def readers(file):
    """Returns the sources that name a file, or a folder that it is in."""
    path = PurePosixPath(file)
    words = [f"/{path.name}", *(f'{folder}"' for folder in path.parents if folder.name)]
    command = ["git", "grep", "-lF", *(word for one in words for word in ("-e", one)), "--", "*.rs"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()


def workspace():
    """Returns the packages of the workspace."""
    command = ["cargo", "metadata", "--no-deps", "--format-version=1", "--offline"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(found.stdout)["packages"]


def short(package):
    return package["name"].removeprefix("manyways-")


def dependents(workspace):
    """Returns {name: (folder, names of dependencies)}."""
    packages = {}
    for package in workspace:
        folder = PurePosixPath(Path(package["manifest_path"]).parent.relative_to(ROOT))
        ours = [dependency for dependency in package["dependencies"] if dependency.get("path")]
        packages[short(package)] = (str(folder), {dependency["name"].removeprefix("manyways-") for dependency in ours})
    return packages


def tested(workspace):
    """Returns the names of the packages that have test binaries."""
    return {short(package) for package in workspace if any(target["test"] for target in package["targets"])}


def family_exists(family):
    """Whether there is a family; one that was moved leaves only names of removed files."""
    return any((ROOT / "tests/tests" / name).exists() for name in (f"{family}.rs", f"{family}/main.rs"))


def scope(files, packages, readers=readers, exists=family_exists):
    """Returns what changed files touch."""
    found = Scope()

    def owners(file):
        return {name for name, (folder, _) in packages.items() if file.startswith(f"{folder}/")}

    in_binary = {"cli"}
    while more := {need for name in in_binary if name in packages for need in packages[name][1]} - in_binary:
        in_binary |= more
    for file in files:
        if file in EVERYTHING or file.startswith(("scripts/runner/", "scripts/test", ".cargo/")):
            found.everything = True
        of = owners(file)
        if not of and not file.startswith("python/"):
            of = set().union(*(owners(reader) for reader in readers(file)))
        found.changed |= of
        found.python |= file.startswith(("python/", "crates/py/"))
        if file.startswith("tests/tests/"):
            family = PurePosixPath(file).parts[2].removesuffix(".rs")
            if exists(family):
                found.families.add(family)
            continue
        families = {family for family, folders in FAMILIES.items() if file.startswith(folders)}
        # All of them run the binary, with the harness.
        found.reached |= families or (set(FAMILIES) if of & (in_binary | {"tests", "rig"}) else set())
    if found.everything:
        found.changed, found.reached = set(packages), set(FAMILIES)
    found.affected = set(found.changed)
    while more := {name for name, (_, needs) in packages.items() if needs & found.affected} - found.affected:
        found.affected |= more
    found.reached -= found.families
    return found
