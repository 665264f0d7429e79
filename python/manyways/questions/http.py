"""What HTTP/1 says of itself: requests, responses, what was asked of whom."""

from manyways.questions.question import DEVICE, GET_FLOWS, NO_POST, Question, ranked

# Transactions, with what is known of their flows.
_WITH_FLOWS = (
    "(http JOIN (SELECT flow, organisation, asn, cdn, cluster, domain, system, is_handheld,\n"
    "    is_valid, has_other_methods, is_g1, is_g2, is_g3, rtt, local_rtt, remote_rtt\n"
    "    FROM tcp) USING (flow))"
)
_PARTS = {
    "1: total": "duration",
    "2: downloading": "downloading",
    "3: T_S, to the first request": "wait_first",
    "4: T_G, between requests": "wait_between",
    "5: T_F, to the first FIN": "wait_last",
}
# There is nothing between the requests of a flow with one.
_IS_THERE = "value IS NOT NULL AND (part NOT LIKE '4%' OR requests > 1)"
_PREDICTABLE = "declared IS NOT NULL AND abs(declared - captured) < 0.1 * greatest(declared, 1)"

QUESTIONS = (
    Question(
        name="requests",
        title="Requests in an HTTP flow, by device class",
        tables=("tcp",),
        source="tcp",
        observations=(
            f"SELECT {DEVICE} AS device, requests AS value\n"
            f"FROM chosen WHERE {GET_FLOWS} AND requests > 0"
        ),
        by=("device",),
        unit="requests",
        axis="requests in a flow",
        more=("avg((value > 1)::INT) AS with_several", "max(value) AS most"),
        units=(("with_several", "1"),),
        notes=(NO_POST,),
    ),
    Question(
        name="durations",
        title="Where the time of HTTP flows goes, by device class",
        tables=("tcp",),
        source="tcp",
        observations=(
            f"SELECT part, {DEVICE} AS device, value, value / nullif(duration, 0) AS share\n"
            "FROM (\n"
            + "\nUNION ALL\n".join(
                f"SELECT *, '{part}' AS part, {column} AS value FROM chosen"
                for part, column in _PARTS.items()
            )
            + f"\n) WHERE {GET_FLOWS} AND requests > 0 AND {_IS_THERE}"
        ),
        by=("device", "part"),
        unit="s",
        axis="time",
        more=(
            "quantile_cont(share, 0.5) AS median_share",
            "avg((share < 0.1)::INT) AS below_a_tenth",
        ),
        units=(("median_share", "1"), ("below_a_tenth", "1")),
        notes=(
            NO_POST,
            "Time in which requests overlap counts once, where the paper adds it up (it saw no "
            "pipelining).",
            "T_G is only of flows with several requests, T_F only of those with a FIN.",
        ),
    ),
    Question(
        name="response-time",
        title="Time to the responses of HTTP, by content and device class",
        tables=("http", "tcp"),
        source=_WITH_FLOWS,
        observations=ranked(
            f"SELECT coalesce(content, 'not said') AS content, {DEVICE} AS device,\n"
            "  response_time AS value\n"
            "FROM chosen WHERE is_valid AND method = 'GET' AND response_time IS NOT NULL",
            "content",
        ),
        by=("device", "content"),
        unit="s",
        axis="time to the response",
        notes=(
            "Every GET counts, of all servers; the paper's figure 12 is of one organisation's: "
            "--where \"organisation = 'Google'\".",
        ),
    ),
    Question(
        name="response-modes",
        title="Round trip of HTTP flows by what they carry, and its modes",
        tables=("http", "tcp"),
        source=_WITH_FLOWS,
        observations=ranked(
            "SELECT coalesce(content, 'not said') AS content, any_value(rtt) AS value,\n"
            "  median(response_time) AS response_time\n"
            "FROM chosen WHERE is_valid AND method = 'GET' AND rtt IS NOT NULL\n"
            "GROUP BY flow, coalesce(content, 'not said')",
            "content",
        ),
        by=("content",),
        unit="s",
        axis="round trip",
        more=("median(response_time) AS median_response",),
        modes=True,
        notes=(
            "A flow counts once for each content that it carries.",
            "A mode is a peak of the histogram in tenths of a decade, smoothed, with at least 5 % of "
            "the flows and a valley to half of the lower peak beside it.",
        ),
    ),
    Question(
        name="domains",
        title="The domains that most flows go to, by device class",
        tables=("tcp",),
        source="tcp",
        observations=(
            f"SELECT {DEVICE} AS device, domain AS which, down_bytes + up_bytes AS value\n"
            "FROM chosen WHERE is_valid AND domain IS NOT NULL"
        ),
        by=("device", "which"),
        unit="B",
        axis="share of the flows",
        summary=(
            "SELECT device, which AS domain, count(*) AS flows,\n"
            "  count(*) / sum(count(*)) OVER (PARTITION BY device) AS share, sum(value) AS bytes\n"
            "FROM observed GROUP BY device, which\n"
            "QUALIFY row_number() OVER (PARTITION BY device ORDER BY count(*) DESC, which) <= 10\n"
            "ORDER BY device, flows DESC, domain"
        ),
        units=(("share", "1"), ("bytes", "B")),
        figure="bars",
        notes=(
            "All valid TCP flows whose server has a name, by the best one that is known: of HTTP, "
            "TLS or DNS. The paper has one table by addresses' own names and one by HTTP's.",
        ),
    ),
    Question(
        name="applications",
        title="Bytes by application",
        tables=("tcp", "udp"),
        source=(
            "(SELECT flow, client, server, server_port, domain, name, organisation, protocol, "
            "system,\n"
            "    is_handheld, up_bytes, down_bytes, 'tcp' AS transport FROM tcp\n"
            "  UNION ALL SELECT flow, client, server, server_port, domain, name, organisation,\n"
            "    protocol, system, is_handheld, up_bytes, down_bytes, 'udp' FROM udp)"
        ),
        observations=(
            "SELECT coalesce(domain, name, organisation, transport || ' port ' || server_port) "
            "AS which,\n  down_bytes + up_bytes AS value, up_bytes FROM chosen"
        ),
        by=("which",),
        unit="B",
        axis="share of the bytes",
        summary=(
            "SELECT which AS application, count(*) AS flows, sum(value) AS bytes,\n"
            "  sum(value) / nullif(sum(sum(value)) OVER (), 0) AS share,\n"
            "  sum(up_bytes) / nullif(sum(value), 0) AS share_up\n"
            "FROM observed GROUP BY which\n"
            "QUALIFY row_number() OVER (ORDER BY sum(value) DESC, which) <= 20\n"
            "ORDER BY bytes DESC, application"
        ),
        units=(("bytes", "B"), ("share", "1"), ("share_up", "1")),
        figure="bars",
        notes=(
            "An application is the domain of its server, or else the server's name, its "
            "organisation, or its port: packets do not say which program sent them.",
        ),
    ),
    Question(
        name="networks",
        title="Bytes by application over each network",
        tables=("packets",),
        source="packets",
        observations=(
            "SELECT coalesce(application, 'no flow') AS which,\n"
            "  coalesce(network, 'interface ' || interface) AS network, bytes AS value,\n"
            "  CASE direction WHEN 'up' THEN bytes ELSE 0 END AS up_bytes FROM chosen"
        ),
        by=("which", "network"),
        unit="B",
        axis="share of the bytes",
        summary=(
            "SELECT network, which AS application, count(*) AS packets, sum(value) AS bytes,\n"
            "  sum(value) / nullif(sum(sum(value)) OVER (PARTITION BY network), 0) AS share,\n"
            "  sum(up_bytes) / nullif(sum(value), 0) AS share_up\n"
            "FROM observed GROUP BY network, which\n"
            "QUALIFY row_number() OVER (PARTITION BY network ORDER BY sum(value) DESC, which) <= 20\n"
            "ORDER BY network, bytes DESC, application"
        ),
        units=(("bytes", "B"), ("share", "1"), ("share_up", "1")),
        figure="bars",
        notes=(
            "Needs the table of packets (--packets). Which network an interface belongs to is told by "
            "its name: a capture in pcapng has it, one in pcap does not.",
        ),
    ),
    Question(
        name="content-length",
        title="Whether Content-Length tells how much will come",
        tables=("http",),
        source="http",
        observations=(
            "SELECT CASE WHEN declared IS NULL THEN '3: not declared'\n"
            f"  WHEN {_PREDICTABLE} THEN '1: declared, within 10 %'\n"
            "  ELSE '2: declared, and another' END AS which, captured AS value\n"
            "FROM chosen WHERE method IN ('GET', 'POST') AND framing != 'none' AND captured IS NOT NULL\n"
            "  AND ending NOT IN ('open', 'uncaptured')"
        ),
        by=("which",),
        unit="B",
        axis="share of the responses",
        summary=(
            "SELECT which AS content_length, count(*) AS responses,\n"
            "  count(*) / sum(count(*)) OVER () AS share, sum(value) AS bytes,\n"
            "  sum(value) / nullif(sum(sum(value)) OVER (), 0) AS share_of_bytes\n"
            "FROM observed GROUP BY which ORDER BY which"
        ),
        units=(("share", "1"), ("bytes", "B"), ("share_of_bytes", "1")),
        figure="bars",
        notes=(
            "Responses of HTTP/1 with a body whose end the capture has; what is declared is compared "
            "with the content that passed.",
        ),
    ),
    Question(
        name="fetches",
        title="In how many flows one thing is fetched, by its content",
        tables=("fetches",),
        source="fetches",
        observations=ranked(
            "SELECT coalesce(split_part(content_type, '/', 1), 'not said') AS content,\n"
            "  flows AS value, requests, bytes FROM chosen",
            "content",
        ),
        by=("content",),
        unit="flows",
        axis="flows for one thing",
        more=(
            "max(value) AS most",
            "median(requests) AS median_requests",
            "median(bytes) AS median_bytes",
        ),
        units=(("median_requests", "count"), ("median_bytes", "B")),
        notes=("Only what is fetched with requests for ranges, over HTTP/1.",),
    ),
)
