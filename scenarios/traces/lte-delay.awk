# A made-up one-way delay of a cellular link, as `seconds milliseconds` over 20 s: 30 ms, with
# 60 ms during a handover.
# Run: awk -f lte-delay.awk > lte-delay.ms
BEGIN {
    for (s = 0; s < 20; s++) print s, s == 11 || s == 12 ? 60 : 30
}
