"""What the network does: rates, round trips, losses and what holds flows back."""

from manyways.questions.question import (
    CLUSTER,
    DEVICE,
    GET_FLOWS,
    GROUPS,
    IN_GROUP,
    NO_POST,
    OVERLAP,
    Question,
    Test,
    ranked,
)

_LIMITS = ("application", "think", "receiver_window", "congestion", "loss", "slow_start")
# Shares of a flow's time count by how long the flow is.
_SHARES = ", ".join(
    f"sum(value * {limit}) / nullif(sum(value), 0) AS {limit}" for limit in _LIMITS
)

QUESTIONS = (
    Question(
        name="servicing-rate",
        title="Servicing rate of HTTP flows, by group and server cluster",
        tables=("tcp",),
        source="tcp",
        observations=ranked(
            f"SELECT flow_group, {CLUSTER} AS cluster, servicing_rate AS value\n"
            f"FROM chosen, {GROUPS}\n"
            f"WHERE {GET_FLOWS} AND servicing_rate IS NOT NULL AND {IN_GROUP}",
            "cluster",
        ),
        by=("flow_group", "cluster"),
        unit="bit/s",
        axis="servicing rate",
        notes=(
            NO_POST,
            OVERLAP,
            "A cluster is a place of an organisation by its round trip (#0 is the nearest); the paper "
            "took a database of places.",
        ),
    ),
    Question(
        name="rtt",
        title="Round trip of TCP flows, by server cluster and device class",
        tables=("tcp",),
        source="tcp",
        observations=ranked(
            f"SELECT {CLUSTER} AS cluster, {DEVICE} AS device, rtt AS value\n"
            "FROM chosen WHERE is_valid AND rtt IS NOT NULL",
            "cluster",
        ),
        by=("device", "cluster"),
        unit="s",
        axis="round trip",
        tests=(Test("device", ("handheld", "other")),),
        notes=(
            "All valid TCP flows, not only HTTP of group G2; narrow it down with --where.",
            "A flow counts with its median.",
        ),
    ),
    Question(
        name="local-rtt",
        title="Local part of the round trip, by group and device class",
        tables=("tcp",),
        source="tcp",
        observations=(
            f"SELECT flow_group, {DEVICE} AS device, local_rtt AS value\n"
            f"FROM chosen, {GROUPS}\n"
            f"WHERE is_valid AND local_rtt IS NOT NULL AND {IN_GROUP}"
        ),
        by=("flow_group", "device"),
        unit="s",
        axis="local round trip",
        tests=(
            Test("device", ("handheld", "other"), within=("flow_group",)),
            Test("flow_group", ("G1", "G3"), within=("device",)),
        ),
        notes=(
            "All valid TCP flows, not only HTTP.",
            OVERLAP,
            "Only G1 and G3 are compared: a test of groups that share flows means nothing.",
        ),
    ),
    Question(
        name="loss",
        title="Loss of data segments, by group and side of the capture point",
        tables=("tcp",),
        source="tcp",
        observations=(
            "SELECT flow_group, side, CASE side WHEN 'local' THEN local_loss ELSE remote_loss END "
            "AS value\n"
            f"FROM chosen, {GROUPS}, (VALUES ('local'), ('remote')) AS sides(side)\n"
            f"WHERE is_valid AND {IN_GROUP} AND local_loss IS NOT NULL"
        ),
        by=("flow_group", "side"),
        unit="1",
        axis="loss rate",
        more=(
            "quantile_cont(value, 0.99) AS p99",
            "avg((value = 0)::INT) AS without_loss",
        ),
        log=False,
        notes=(
            "Data segments of both ends, and losses only: what was sent again for nothing is not "
            "counted, where the paper counts all that looks like a loss.",
            "All valid TCP flows, not only HTTP.",
            OVERLAP,
        ),
    ),
    Question(
        name="concurrency",
        title="Flows at a time beside long HTTP flows, and what they do to the servicing rate",
        tables=("tcp",),
        source="tcp",
        observations=ranked(
            f"SELECT {CLUSTER} AS cluster, {DEVICE} AS device, concurrency AS value, "
            "servicing_rate\n"
            f"FROM chosen WHERE {GET_FLOWS} AND is_g3 AND concurrency IS NOT NULL",
            "cluster",
        ),
        by=("device", "cluster"),
        unit="flows",
        axis="flows of the client at a time",
        more=(
            "CASE WHEN count(servicing_rate) > 2 THEN corr(value, servicing_rate) END "
            "AS correlation",
        ),
        units=(("correlation", "number"),),
        log=False,
        notes=(
            NO_POST,
            "Group G3, of any content: the paper correlates video alone, whose type is in the table "
            "http. The flow itself is one of those at a time.",
            "The correlation is Pearson's; it is left out where there are fewer than 3 flows, or all "
            "are the same.",
        ),
    ),
    Question(
        name="limits",
        title="What limits servers, by device class and by server cluster",
        tables=("tcp",),
        source="tcp",
        observations=(
            "SELECT kind, which, down_limited_time AS value, "
            + ", ".join(f"down_limited_{limit} AS {limit}" for limit in _LIMITS)
            + "\nFROM (\n"
            f"  SELECT *, 'device' AS kind, {DEVICE} AS which FROM chosen\n"
            "  UNION ALL\n"
            + ranked(
                f"SELECT *, 'server' AS kind, {CLUSTER} AS which FROM chosen", "which"
            ).replace("SELECT * REPLACE", "SELECT * EXCLUDE (times) REPLACE", 1)
            + "\n) WHERE down_limited_time IS NOT NULL"
        ),
        by=("kind", "which"),
        unit="s",
        axis="share of the time",
        summary=(
            f"SELECT kind, which, count(*) AS flows, sum(value) AS time, {_SHARES}\n"
            "FROM observed GROUP BY kind, which ORDER BY kind, flows DESC, which"
        ),
        units=(("time", "s"), *((limit, "1") for limit in _LIMITS)),
        figure="shares",
        notes=(
            "Shares of the time between data segments of the server, of all flows together, as in "
            "the summary and the report: a long flow counts more.",
        ),
    ),
    Question(
        name="throughput",
        title="Throughput by the size of the flow, of TCP and of Multipath TCP",
        tables=("tcp", "seconds", "subflows"),
        source=(
            "(SELECT tcp.*, connection FROM tcp\n"
            "    LEFT JOIN (SELECT flow, any_value(connection) AS connection FROM subflows\n"
            "      WHERE role = 'primary' OR is_accepted GROUP BY flow) USING (flow)\n"
            "    WHERE flow NOT IN (SELECT flow FROM (SELECT flow, count(*) AS busy,\n"
            "        (epoch_ns(max(second)) - epoch_ns(min(second))) // 1000000000 + 1 AS all_of_them\n"
            "      FROM seconds GROUP BY flow) WHERE busy < all_of_them))"
        ),
        observations=(
            "SELECT CASE WHEN bytes < 1e4 THEN '1: below 10 kB' WHEN bytes < 1e5 THEN '2: to 100 kB'\n"
            "  WHEN bytes < 1e6 THEN '3: to 1 MB' WHEN bytes < 1e7 THEN '4: to 10 MB'\n"
            "  ELSE '5: above 10 MB' END AS size, kind, 8 * bytes / lasted AS value\n"
            "FROM (SELECT CASE WHEN connection IS NULL THEN 'TCP' ELSE 'MPTCP' END AS kind,\n"
            "    sum(down_bytes) AS bytes,\n"
            "    (epoch_ns(max(ended)) - epoch_ns(min(started))) / 1e9 AS lasted\n"
            "  FROM chosen GROUP BY connection IS NULL, coalesce(connection, flow))\n"
            "WHERE bytes > 0 AND lasted > 0"
        ),
        by=("size", "kind"),
        unit="bit/s",
        axis="throughput, down",
        more=("avg(value) AS mean",),
        notes=(
            "Flows that carry nothing for a whole second of the clock, and something before and "
            "after, are left out; the paper leaves out those with a gap of more than one second.",
            "Subflows of a connection of Multipath TCP are put together; which of the networks was "
            "the first cannot be known from packets.",
        ),
    ),
    Question(
        name="dns",
        title="Time to answers of name servers",
        tables=("dns",),
        source="dns",
        observations=ranked(
            "SELECT server, transport, CASE WHEN NOT is_ambiguous THEN latency END AS value, "
            "answered, code\n"
            "FROM chosen WHERE asked IS NOT NULL",
            "server",
        ),
        by=("transport", "server"),
        unit="s",
        axis="time to the answer",
        more=(
            "count(value) AS measured",
            "count(*) - count(answered) AS unanswered",
            "count(*) FILTER (code = 'NXDOMAIN') AS no_such_name",
        ),
        units=(("measured", "count"), ("unanswered", "count"), ("no_such_name", "count")),
        notes=("Where a question was asked again before its answer came, no time is taken.",),
    ),
)
