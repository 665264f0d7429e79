"""Reads tables of flows and answers questions about them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
from pyarrow import parquet

from manyways import statistics, words
from manyways.captures import schemas
from manyways.questions import ALL, Question, Test

# So many values are looked at for modes; of more, a sample that is the same in every run.
_MODE_VALUES = 100_000

# Metadata of a table with the name and version of its schema: from `manyways flows`, from Arrow.
_VERSION_KEYS = (b"manyways.schema", b"schema")


class FlowsError(Exception):
    """An error in one sentence, with a hint."""

    def __init__(self, sentence: str, hint: str | None = None, *, is_usage: bool = False):
        super().__init__(sentence)
        self.hint = hint
        self.is_usage = is_usage


@dataclass(frozen=True)
class Answer:
    """The answer to a question."""

    question: Question
    sql: str
    table: pa.Table
    # What tests and correlations say, in sentences; the same as numbers is in `tests`.
    findings: list[str] = field(default_factory=list)
    tests: list[dict] = field(default_factory=list)
    # Why there is nothing, where there is nothing.
    nothing: str | None = None

    def text(self) -> str:
        """Formats the answer as text for people."""
        lines = [self.question.title, ""]
        if self.nothing:
            lines.append(self.nothing)
        else:
            lines += words.table(self.table, self.question)
            lines += ["", *self.findings] if self.findings else []
        lines += ["", *(f"Note: {note}" for note in self.question.notes)]
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        """Formats the answer as JSON, in seconds, bit/s, bytes and shares from 0 to 1."""
        document = {
            "schema": "manyways-flows-answer/1",
            "question": self.question.name,
            "title": self.question.title,
            "unit": self.question.unit,
            "rows": self.table.to_pylist(),
            "tests": self.tests,
            "findings": self.findings,
            "nothing": self.nothing,
            "notes": list(self.question.notes),
        }
        return json.dumps(document, ensure_ascii=False, default=str) + "\n"

    def csv(self) -> str:
        """Formats the rows as CSV, in the units of `json`."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.table.column_names)
        writer.writerows(row.values() for row in self.table.to_pylist())
        return text.getvalue()


class Flows:
    """Tables of flows: a folder of `manyways flows -o`, from captures or live, or of
    `manyways.cluster`, or the tables from `read_captures`."""

    def __init__(self, source: str | os.PathLike[str] | Mapping[str, pa.Table]):
        self._db = duckdb.connect()
        self._db.execute("SET TimeZone = 'UTC'")
        self._absent: set[str] = set()
        self._name = "the tables"
        if isinstance(source, Mapping):
            self._take(source)
        else:
            self._open(Path(source))

    def ask(self, question: str, where: str | None = None) -> Answer:
        """Answers a question about the rows of its source that match an SQL condition."""
        asked = find(question)
        sql = asked.sql(where)
        absent = sorted(set(asked.tables) & self._absent)
        table = self.query(sql)
        if table.num_rows == 0 or _is_empty(table, asked):
            return Answer(asked, sql, table.slice(0, 0), nothing=self._nothing(absent, where))
        findings, tests = [], []
        for test in asked.tests:
            for sentence, numbers in self._test(asked, test, where):
                findings.append(sentence)
                tests.append(numbers)
        if asked.modes:
            findings += self._modes(asked, where)
        return Answer(asked, sql, table, findings, tests)

    def plot(self, question: str, path: str | os.PathLike[str], where: str | None = None) -> bool:
        """Draws the answer into a file. Returns False, without a file, if the answer is empty."""
        from manyways import figure

        asked = find(question)
        if self.ask(question, where).nothing:
            return False
        figure.draw(self, asked, where, Path(path))
        return True

    def query(self, sql: str) -> pa.Table:
        """Runs an SQL query in DuckDB; each table is a view with its name."""
        try:
            return self._db.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise FlowsError(
                f"the query cannot be answered: {str(error).splitlines()[0]}",
                "docs/flows-schema.md names the columns; --sql prints the whole query",
                is_usage=True,
            ) from error

    def _open(self, folder: Path) -> None:
        if not folder.is_dir():
            raise FlowsError(f"{folder} is no folder", "write tables with: manyways flows -o DIR")
        self._name = str(folder)
        found = False
        for table, schema in schemas().items():
            # A run of one machine, or the shards of many, or the sets of a live capture.
            files = sorted(folder.glob(f"{table}.parquet"))
            files = files or sorted(folder.glob(f"shard=*/{table}.parquet"))
            if not files:
                self._empty(table, schema)
                continue
            found = True
            for file in files:
                _check_version(file, schema)
            paths = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
            self._execute(
                f"CREATE VIEW {table} AS SELECT * FROM "
                f"read_parquet([{paths}], union_by_name = true, hive_partitioning = false)",
                f"{folder}/{table}.parquet cannot be read",
            )
        if not found:
            raise FlowsError(
                f"{folder} has no tables of flows", "write some with: manyways flows -o DIR"
            )

    def _take(self, tables: Mapping[str, pa.Table]) -> None:
        for table, schema in schemas().items():
            if table in tables:
                self._db.register(table, tables[table])
            else:
                self._empty(table, schema)

    def _empty(self, table: str, schema: pa.Schema) -> None:
        self._absent.add(table)
        self._db.register(table, schema.empty_table())

    def _execute(self, sql: str, sentence: str) -> None:
        try:
            self._db.execute(sql)
        except duckdb.Error as error:
            raise FlowsError(f"{sentence}: {str(error).splitlines()[0]}") from error

    def _nothing(self, absent: list[str], where: str | None) -> str:
        if absent:
            which = " and ".join(absent)
            return f"There is nothing to answer with: {self._name} has no table {which}."
        of_these = " that fits the condition" if where else ""
        return f"There is nothing to answer with: no row of {self._name}{of_these} has what it takes."

    def _test(self, asked: Question, test: Test, where: str | None) -> list[tuple[str, dict]]:
        columns = ", ".join([*test.within, test.column])
        rows = self.query(
            asked.observed(where)
            + f"SELECT {columns}, count(value), avg(value), var_samp(value)\n"
            + f"FROM observed WHERE value IS NOT NULL GROUP BY {columns} ORDER BY {columns}"
        )
        samples: dict[tuple, dict[str, statistics.Sample]] = {}
        for *labels, count, mean, variance in zip(*rows.to_pydict().values(), strict=True):
            sample = statistics.Sample(count, mean, variance or 0.0)
            samples.setdefault(tuple(labels[:-1]), {})[labels[-1]] = sample
        results = []
        for within, of in samples.items():
            one, other = (of.get(label) for label in test.pair)
            result = statistics.welch(one, other) if one and other else None
            if one and other and result:
                numbers = {
                    "test": "welch",
                    "within": dict(zip(test.within, within, strict=True)),
                    "column": test.column,
                    "pair": list(test.pair),
                    "counts": [one.count, other.count],
                    "means": [one.mean, other.mean],
                    "t": result.t,
                    "degrees_of_freedom": result.freedom,
                    "p": result.p,
                }
                results.append((words.test(numbers, asked.unit), numbers))
        return results

    def _modes(self, asked: Question, where: str | None) -> list[str]:
        by = asked.by[0]
        rows = self.query(
            asked.observed(where)
            + f"SELECT {by}, list(value ORDER BY hash(value), value)[:{_MODE_VALUES}] AS vals\n"
            + f"FROM observed WHERE value > 0 GROUP BY {by} ORDER BY {by}"
        )
        labels, lists = rows.to_pydict().values()
        return [
            words.modes(label, statistics.modes(values), asked.unit)
            for label, values in zip(labels, lists, strict=True)
        ]


def find(name: str) -> Question:
    """Returns the question with this name."""
    if name not in ALL:
        raise FlowsError(
            f"there is no question {name}", "they are: " + ", ".join(ALL), is_usage=True
        )
    return ALL[name]


def _is_empty(table: pa.Table, asked: Question) -> bool:
    """Returns whether an answer is empty; an aggregate without groups has a row even then."""
    return not asked.by and not table.column("count")[0].as_py()


def _check_version(file: Path, schema: pa.Schema) -> None:
    try:
        notes = parquet.read_metadata(file).metadata or {}
    except (OSError, pa.ArrowException):
        return  # The query says what is wrong with it.
    expected = schema.metadata[b"schema"]
    version = next((notes[key] for key in _VERSION_KEYS if key in notes), expected)
    if version != expected:
        raise FlowsError(
            f"{file} has the schema {version.decode(errors='replace')}, "
            f"and this package reads {expected.decode()}",
            "write the tables again with the manyways of this version",
        )
