// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// The arithmetic of LIA (RFC 6356) without floating point. In congestion avoidance, a window grows
// for each acknowledged packet by
//
//     min(alpha / cwnd_total, 1 / cwnd)
//     alpha = cwnd_total * max(cwnd_i / rtt_i^2) / (sum(cwnd_i / rtt_i))^2      (section 3)
//
// cwnd_total cancels out. With b, the subflow that has the maximum, one packet of growth needs
//
//     cwnd_total / alpha = (sum(cwnd_i * rtt_b / rtt_i))^2 / cwnd_b             (as in section 4)
//
// acknowledged packets, but never fewer than cwnd.
//
// The includer defines u32 and u64.

// Subflows of one connection that are coupled. The kernel's path manager opens at most eight in
// addition to the first.
#define LIA_MAX_SUBFLOWS 16
// Bits of a fraction of a packet: the alpha_scale of 512 of section 4.
#define LIA_FRACTION 9
// Larger values count as these, so that no product exceeds 64 bits: packets, microseconds.
#define LIA_MAX_WINDOW (1 << 18)
#define LIA_MAX_RTT (1 << 22)

// Zeros: no such subflow. Otherwise both values are between 1 and their limits.
struct lia_subflow {
	u32 window; // packets
	u32 rtt; // microseconds, smoothed
};

static inline u32 lia_within(u32 value, u32 limit)
{
	if (!value)
		return 1;
	return value < limit ? value : limit;
}

static inline struct lia_subflow lia_subflow(u32 window, u32 rtt)
{
	struct lia_subflow subflow = {
		.window = lia_within(window, LIA_MAX_WINDOW),
		.rtt = lia_within(rtt, LIA_MAX_RTT),
	};
	return subflow;
}

// Returns cwnd_total / alpha in packets, rounded up; 0 without any subflow.
static inline u32 lia_packets_for_growth(const struct lia_subflow all[LIA_MAX_SUBFLOWS])
{
	struct lia_subflow best = {};
	u64 sum = 0;

	// Compares window / rtt^2 without a division.
	for (u32 i = 0; i < LIA_MAX_SUBFLOWS; i++)
		if (all[i].window && (u64)all[i].window * best.rtt * best.rtt >=
					     (u64)best.window * all[i].rtt * all[i].rtt)
			best = all[i];
	if (!best.window)
		return 0;
	// Since b has the maximum, no term exceeds sqrt(cwnd_i * cwnd_b): the sum has at most 31 bits.
	for (u32 i = 0; i < LIA_MAX_SUBFLOWS; i++)
		if (all[i].window)
			sum += (((u64)all[i].window * best.rtt) << LIA_FRACTION) / all[i].rtt;
	u64 divisor = (u64)best.window << (2 * LIA_FRACTION);
	return (sum * sum + divisor - 1) / divisor;
}
