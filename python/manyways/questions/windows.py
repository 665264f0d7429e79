"""Windows: those that servers begin with, and those that clients give."""

from manyways.questions.question import (
    GET_FLOWS,
    GROUPS,
    IN_GROUP,
    NO_POST,
    OVERLAP,
    Question,
    Test,
    ranked,
)

# Between the 5 kB and the 14 kB of the campus Wi-Fi paper's figure 15.
_LARGE = 10_000
# So many estimates a server needs (campus Wi-Fi, 5.3).
_ESTIMATES = 10

QUESTIONS = (
    Question(
        name="initial-windows",
        title="Initial congestion windows of servers, by organisation",
        tables=("tcp",),
        source="tcp",
        observations=ranked(
            "SELECT coalesce(any_value(organisation), 'no known organisation') AS organisation,\n"
            "  server, median(icwnd_bytes) AS value, avg(icwnd_bytes) AS mean,\n"
            "  max(icwnd_bytes) AS largest, count(*) AS estimates\n"
            f"FROM chosen WHERE is_valid AND icwnd_is_valid\n"
            f"GROUP BY server HAVING count(*) >= {_ESTIMATES}",
            "organisation",
        ),
        by=("organisation",),
        unit="B",
        axis="median initial congestion window of a server",
        more=("avg(mean) AS mean", "max(largest) AS largest", "sum(estimates) AS estimates"),
        units=(("estimates", "count"),),
        log=False,
        notes=(
            f"Counts servers, of which each has at least {_ESTIMATES} valid estimates; the quantiles "
            "are of their medians, the mean is of their means.",
            "TLS's first answer and those that were short or paced give no valid estimate.",
        ),
    ),
    Question(
        name="receive-windows",
        title="Receive windows and what is used of them, by group and operating system",
        tables=("tcp",),
        source="tcp",
        observations=ranked(
            "SELECT flow_group, coalesce(system, 'unknown') AS system,\n"
            "  down_in_flight_max AS value, client_window_first, client_window_max,\n"
            "  client_window_limited\n"
            f"FROM chosen, {GROUPS}\n"
            f"WHERE is_valid AND {IN_GROUP} AND down_in_flight_max IS NOT NULL",
            "system",
        ),
        by=("flow_group", "system"),
        unit="B",
        axis="most bytes on their way at a time",
        more=(
            "median(client_window_first) AS first_window",
            "median(client_window_max) AS largest_window",
            "avg(client_window_limited::INT) AS limited_by_it",
        ),
        units=(("limited_by_it", "1"),),
        notes=("All valid TCP flows, not only HTTP.", OVERLAP),
    ),
    Question(
        name="icwnd-effect",
        title="Servicing rate of short HTTP flows (G1), by the windows that they begin with",
        tables=("tcp",),
        source=(
            "(tcp LEFT JOIN (SELECT server, median(icwnd_bytes) AS server_window FROM tcp\n"
            "    WHERE is_valid AND icwnd_is_valid GROUP BY server\n"
            f"    HAVING count(*) >= {_ESTIMATES}) USING (server))"
        ),
        observations=(
            f"SELECT CASE WHEN client_window_first < {_LARGE} THEN 'small' ELSE 'large' END "
            "AS client_window,\n"
            "  CASE WHEN server_window IS NULL THEN 'unknown'\n"
            f"  WHEN server_window < {_LARGE} THEN 'small' ELSE 'large' END AS server_window,\n"
            "  servicing_rate AS value\n"
            f"FROM chosen WHERE {GET_FLOWS} AND is_g1 AND servicing_rate IS NOT NULL\n"
            "  AND client_window_first IS NOT NULL"
        ),
        by=("client_window", "server_window"),
        unit="bit/s",
        axis="servicing rate",
        tests=(
            Test("client_window", ("small", "large")),
            Test("server_window", ("small", "large")),
        ),
        notes=(
            NO_POST,
            f"A window is small below {_LARGE} bytes. A client's is the first one after its SYN; a "
            f"server's is the median of its other flows' estimates, of which it needs {_ESTIMATES}.",
            "Not split by operating system: --where \"system = 'Android'\" does that.",
        ),
    ),
)
