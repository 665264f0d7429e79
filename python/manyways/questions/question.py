"""What a question is, and the words of SQL that several of them share."""

from __future__ import annotations

from dataclasses import dataclass

QUANTILES = {"p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9}
# So many servers or systems have a line of their own; more would make no readable figure.
_NAMED = 5

DEVICE = "CASE WHEN is_handheld THEN 'handheld' WHEN NOT is_handheld THEN 'other' ELSE 'unknown' END"
CLUSTER = (
    "coalesce(organisation || CASE WHEN cluster IS NULL THEN '' ELSE ' #' || cluster END, "
    "'no known organisation')"
)
# The flows of the campus Wi-Fi paper: HTTP with a whole handshake, no RST and nothing but GET.
GET_FLOWS = "protocol = 'http' AND is_valid AND NOT has_other_methods"
# The groups of the same paper (5.2) overlap: a flow is in each that it fits.
GROUPS = "(VALUES ('G1'), ('G2'), ('G3')) AS groups(flow_group)"
IN_GROUP = "CASE flow_group WHEN 'G1' THEN is_g1 WHEN 'G2' THEN is_g2 ELSE is_g3 END"

NO_POST = "Flows with any method but GET are left out, as in the paper."
OVERLAP = (
    "G1 has 1 to 10 data segments of the server, G2 at least 10 and G3 at least 50: they overlap."
)


@dataclass(frozen=True)
class Test:
    """Welch's t-test of the mean value of two labels, within each value of other columns."""

    column: str
    pair: tuple[str, str]
    within: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """A question: where its observations are from, and what is made of them."""

    name: str
    title: str
    # The tables that it needs.
    tables: tuple[str, ...]
    # A FROM clause; a condition of the user's is put to its rows.
    source: str
    # Selects from `chosen`; what is measured is in the column `value`.
    observations: str
    by: tuple[str, ...]
    # What `value` is counted in: s, bit/s, B, 1 (a share) or what is counted.
    unit: str
    # What is on the axis of a figure.
    axis: str
    # Selects from `observed`; quantiles by the columns `by` where there is none.
    summary: str | None = None
    # More aggregates beside the quantiles.
    more: tuple[str, ...] = ()
    # What columns of the answer are counted in, where that is not the unit of the value.
    units: tuple[tuple[str, str], ...] = ()
    tests: tuple[Test, ...] = ()
    # Says where each series has its peaks.
    modes: bool = False
    figure: str = "distribution"
    log: bool = True
    # Where the answer differs from the papers', and what it leaves out.
    notes: tuple[str, ...] = ()

    def observed(self, where: str | None) -> str:
        """The common table expressions that end in `observed`."""
        # On a line of its own: a comment in the condition ends there.
        condition = f"\n  WHERE ({where}\n  )" if where else ""
        return (
            f"WITH chosen AS (\n  SELECT * FROM {self.source}{condition}\n),\n"
            f"observed AS (\n{_indented(self.observations)}\n)\n"
        )

    def sql(self, where: str | None = None) -> str:
        """The whole query."""
        return self.observed(where) + (self.summary or self._quantiles())

    def _quantiles(self) -> str:
        columns = [*self.by, "count(*) AS count"]
        columns += [f"quantile_cont(value, {at}) AS {name}" for name, at in QUANTILES.items()]
        columns += self.more
        grouped = f"\nGROUP BY {', '.join(self.by)}\nORDER BY {', '.join(self.by)}"
        return f"SELECT {', '.join(columns)}\nFROM observed{grouped if self.by else ''}"


def ranked(rows: str, column: str, keep: int = _NAMED) -> str:
    """The same rows; all but the most frequent values of a column become one."""
    return (
        f"SELECT * REPLACE (CASE WHEN dense_rank() OVER (ORDER BY times DESC, {column}) <= {keep} "
        f"THEN {column} ELSE 'all others' END AS {column})\n"
        f"FROM (SELECT *, count(*) OVER (PARTITION BY {column}) AS times FROM (\n"
        f"{_indented(rows)}\n))"
    )


def _indented(sql: str) -> str:
    return "\n".join("  " + line.strip("\n") for line in sql.strip().splitlines())
