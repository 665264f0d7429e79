"""Which crates and test families a change touches: what `scripts/check` has to run."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .processes import ROOT

# Test families of tests/ by the crates that only they exercise. A change of another crate touches
# the families of all commands that depend on it, which take longer than a check may: `check`
# names them instead.
FAMILIES = {
    "bond": ("crates/net/src/bond", "crates/proto/src/bond", "crates/proto/src/mux", "crates/proto/src/sched", "crates/cli/src/bond"),
    "bond_policy": ("crates/net/src/bond", "crates/proto/src/policy", "crates/cli/src/bond"),
    "flows": ("crates/flows", "crates/capture", "crates/cli/src/flows"),
    "get": ("crates/net/src/fetch", "crates/proto/src/fetch", "crates/proto/src/estimate", "crates/cli/src/get"),
    "lab": ("crates/lab", "crates/link", "crates/trace", "crates/cli/src/lab"),
    "radio": ("crates/net/src/radio", "crates/model/src/radio", "crates/cli/src/radio"),
    "demo": ("crates/cli/src/demo",),
}


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
    """Returns the files that differ from a commit, also those that are not committed."""
    listed = subprocess.run(["git", "diff", "--name-only", base], cwd=ROOT, capture_output=True, text=True, check=True)
    untracked = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return sorted({*listed.stdout.splitlines(), *untracked.stdout.splitlines()})


def dependents():
    """Returns the packages of the workspace: {name: (folder, names of dependencies)}."""
    command = ["cargo", "metadata", "--no-deps", "--format-version=1", "--offline"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    packages = {}
    for package in json.loads(found.stdout)["packages"]:
        folder = PurePosixPath(Path(package["manifest_path"]).parent.relative_to(ROOT))
        names = {dependency["name"].removeprefix("manyways-") for dependency in package["dependencies"] if dependency.get("path")}
        packages[package["name"].removeprefix("manyways-")] = (str(folder), names)
    return packages


def scope(files, packages):
    """Returns what changed files touch."""
    found = Scope()
    for file in files:
        if file in ("Cargo.toml", "Cargo.lock", "rust-toolchain.toml") or file.startswith("scripts/runner/"):
            found.everything = True
        owners = [name for name, (folder, _) in packages.items() if file.startswith(f"{folder}/")]
        found.changed.update(owners)
        found.python |= file.startswith("python/") or file.startswith("crates/py/")
        if file.startswith("tests/tests/"):
            found.families.add(PurePosixPath(file).parts[2].removesuffix(".rs"))
        found.reached.update(family for family, folders in FAMILIES.items() if file.startswith(folders))
    if found.everything:
        found.changed = set(packages)
    found.affected = set(found.changed)
    while more := {name for name, (_, needs) in packages.items() if needs & found.affected} - found.affected:
        found.affected |= more
    found.reached -= found.families
    return found
