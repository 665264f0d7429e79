# A made-up walk away from an access point and back, as `seconds Mbit/s` over 30 s.
# Run: awk -f wifi-leaving.awk > wifi-leaving.mbps
BEGIN {
    for (s = 0; s < 30; s++) {
        away = s < 15 ? s : 30 - s
        printf "%d %.1f\n", s, 40 / (1 + (away / 6) ^ 3)
    }
}
