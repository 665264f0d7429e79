"""The command line: what it prints, and how it fails."""

import csv
import json
import os
import subprocess
import sys

import pytest
from pyarrow import parquet

from manyways.questions import ALL


def run(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, "-P", "-m", "manyways", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, **environment},
    )


def test_an_answer_in_each_form(folder):
    text = run("ask", folder, "local-rtt")
    assert text.returncode == 0 and "13.5 ms" in text.stdout and "Welch's t" in text.stdout
    document = json.loads(run("ask", folder, "local-rtt", "--json").stdout)
    assert document["schema"] == "manyways-flows-answer/1" and document["unit"] == "s"
    lines = list(csv.DictReader(run("ask", folder, "local-rtt", "--csv").stdout.splitlines()))
    assert [float(row["p50"]) for row in lines] == [row["p50"] for row in document["rows"]]
    assert {row["device"] for row in lines} == {"handheld", "other"}


def test_the_query_is_printed_and_can_be_run(folder, flows):
    sql = run("ask", "rtt", "--sql", "--where", "is_handheld").stdout
    assert "WHERE (is_handheld" in sql
    flows.query(sql)
    assert run("ask", folder, "rtt", "--sql").returncode == 0


def test_all_questions_are_listed():
    lines = run("ask", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(ALL)
    listed = json.loads(run("ask", "--list", "--json").stdout)["questions"]
    assert list(csv.DictReader(run("ask", "--list", "--csv").stdout.splitlines())) == listed
    assert {one["name"]: one["title"] for one in listed} == {n: q.title for n, q in ALL.items()}


def test_nothing_is_no_failure(folder, tmp_path):
    drawn = tmp_path / "none.png"
    answer = run("ask", folder, "mptcp-shares", "--plot", drawn)
    assert answer.returncode == 0 and "has no table mptcp" in answer.stdout
    assert "no figure was written" in answer.stderr and not drawn.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ask", "FOLDER", "nothing"], 2, "there is no question nothing"),
        (["ask", "FOLDER"], 2, "a question is missing"),
        (["ask"], 2, "a folder and a question is missing"),
        (["ask", "FOLDER", "rtt", "--where", "1 ="], 2, "cannot be answered"),
        (["ask", "FOLDER", "local-rtt", "--plot", "a.txt"], 2, "names no format"),
        (["ask", "FOLDER", "local-rtt", "--plot", "/none/a.png"], 1, "cannot write"),
        (["ask", "/none", "rtt"], 1, "is no folder"),
        (["ask", "EMPTY", "rtt"], 1, "has no tables"),
        (["ask", "OLD", "rtt"], 1, "manyways-flows/0"),
        (["ask", "OLDER", "rtt"], 1, "manyways-flows/0"),
        (["ask", "BROKEN", "rtt"], 1, "cannot be read"),
        (["ask", "FOLDER", "rtt", "--json", "--csv"], 2, "not allowed"),
    ],
)
def test_failures_have_a_sentence_and_a_hint(folder, tmp_path, arguments, code, words):
    folders = {"FOLDER": folder}
    for name in ("EMPTY", "OLD", "OLDER", "BROKEN"):
        folders[name] = tmp_path / name
        folders[name].mkdir()
    # One table of a folder, and a set of a live capture, as an earlier version wrote them.
    old_set = folders["OLDER"] / "shard=2026-01-31T12-00-00Z"
    old_set.mkdir()
    parquet.write_table(parquet.read_table(folder / "tcp.parquet"), folders["OLD"] / "tcp.parquet")
    for old, table in ((folders["OLD"], "udp"), (old_set, "tcp")):
        rows = parquet.read_table(folder / f"{table}.parquet")
        rows = rows.replace_schema_metadata({"manyways.schema": "manyways-flows/0"})
        parquet.write_table(rows, old / f"{table}.parquet")
    (folders["BROKEN"] / "tcp.parquet").write_text("this is no table")
    failed = run(*(folders.get(argument, argument) for argument in arguments), cwd=tmp_path)
    assert failed.returncode == code, failed
    assert words in failed.stderr and "Traceback" not in failed.stderr
    assert not failed.stdout


def test_figures_are_drawn_without_a_display(folder, tmp_path):
    environment = {"DISPLAY": "", "MPLBACKEND": "TkAgg"}
    for question, name in (("local-rtt", "a.png"), ("domains", "b.svg"), ("limits", "c.pdf")):
        path = tmp_path / name
        assert run("ask", folder, question, "--plot", path, **environment).returncode == 0
        assert path.stat().st_size > 3_000
    assert "<svg" in (tmp_path / "b.svg").read_text()


@pytest.mark.parametrize("name", ALL)
def test_each_answer_can_be_drawn(name, flows, tmp_path):
    path = tmp_path / f"{name}.svg"
    drawn = flows.plot(name, path)
    assert drawn == path.exists() == (flows.ask(name).nothing is None)
    if drawn:
        # Axes say what they are counted in.
        assert "[" in path.read_text() or ALL[name].unit not in ("s", "bit/s", "B", "1")
