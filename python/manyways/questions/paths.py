"""Multipath TCP: which path carries how much, and how late the second one comes."""

from manyways.questions.question import Question

QUESTIONS = (
    Question(
        name="mptcp-shares",
        title="The primary subflow's share of the bytes, by the size of the connection",
        tables=("mptcp",),
        source="mptcp",
        observations=(
            "SELECT CASE WHEN bytes < 1e4 THEN '1: below 10 kB' WHEN bytes < 1e5 THEN '2: to 100 kB'\n"
            "  WHEN bytes < 1e6 THEN '3: to 1 MB' ELSE '4: above 1 MB' END AS size,\n"
            "  share_of_primary AS value, bytes, subflows\n"
            "FROM (SELECT *, down_bytes + up_bytes AS bytes FROM chosen)\n"
            "WHERE share_of_primary IS NOT NULL"
        ),
        by=("size",),
        unit="1",
        axis="share of the primary subflow",
        more=(
            "avg((value >= 1)::INT) AS all_on_it",
            "sum(value * bytes) / nullif(sum(bytes), 0) AS share_of_bytes",
            "avg((subflows > 1)::INT) AS with_several",
        ),
        log=False,
        notes=(
            "Not split by the network of the primary subflow: packets do not say whether it is Wi-Fi.",
        ),
    ),
    Question(
        name="mptcp-handshakes",
        title="Handshakes of secondary subflows",
        tables=("subflows",),
        source="subflows",
        observations=(
            "SELECT delay, CASE delay WHEN 'handshake' THEN handshake_delay ELSE join_delay END "
            "AS value\n"
            "FROM chosen, (VALUES ('handshake'), ('since the first SYN')) AS delays(delay)\n"
            "WHERE role = 'joined' AND value IS NOT NULL"
        ),
        by=("delay",),
        unit="s",
        axis="delay",
        notes=(
            "From a subflow's SYN to the end of its handshake, and from the connection's first SYN to "
            "the subflow's. Not split by network.",
        ),
    ),
)
