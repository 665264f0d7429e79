# A made-up LTE downlink while walking, as a Mahimahi trace of 20 s: about 6 Mbit/s that swings
# between 1 and 11 over 7 s, with bursts of 5 ms as a scheduler gives them and a gap of 300 ms at
# 12 s. Run: awk -f lte-walk.awk > lte-walk.down
BEGIN {
    bytes = 0
    for (ms = 1; ms <= 20000; ms++) {
        rate = 6e6 + 5e6 * sin(2 * 3.14159265 * ms / 7000)
        if (ms >= 12000 && ms < 12300) rate = 0
        bytes += rate / 8000
        if (ms % 5) continue
        while (bytes >= 1504) { print ms; bytes -= 1504 }
    }
    # The last line is the period.
    print 20000
}
