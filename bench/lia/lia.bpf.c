// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// The kernel accepts a congestion control only under a licence that is compatible with the GPL, and
// the project has Apache-2.0, so that this file has both.

// Coupled congestion control for MPTCP (LIA, RFC 6356) as BPF programs of Linux (struct_ops).
// `scripts/lia` compiles and registers it under the name that LIA_NAME defines.
//
// The subflows of a connection share their windows and round-trip times in a map; its keys contain
// the local token of the connection (RFC 8684, 2), which is unique on a host. In congestion
// avoidance, windows grow as `growth.h` computes it. Slow start, the reaction to loss and its undoing
// are those of Reno, and so is everything on a socket without MPTCP or with a single subflow.
//
// Deviations from the RFC: windows count packets, not bytes, so that the segment sizes of all
// subflows have to be similar. A subflow takes part from its first acknowledged packet on, so that
// an unused backup does not slow the others down. alpha is computed when the window has changed,
// and at least once per round trip. In fast recovery, a subflow counts with the slow start
// threshold, its window after the recovery.

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "growth.h"

char lia_license[] SEC("license") = "GPL";

#define TEXT_OF(word) #word
#define TEXT(word) TEXT_OF(word)
#define JOIN_OF(one, other) one##other
#define JOIN(one, other) JOIN_OF(one, other)

// Coupled subflows of all connections of the host.
#define MAX_ENTRIES 8192

struct lia_key {
	u32 token;
	u32 slot;
};

// One entry for each subflow. Only the socket of the subflow writes and removes its entry. If
// another one reads an entry while it changes, one value of alpha is inexact, which min() bounds.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ENTRIES);
	__type(key, struct lia_key);
	__type(value, struct lia_subflow);
} JOIN(LIA_NAME, _sf) SEC(".maps");
#define subflows JOIN(LIA_NAME, _sf)

// The state of a socket, in its icsk_ca_priv, which the kernel clears.
struct lia {
	struct lia_key key; // a token of 0: not in the map
	u32 window; // at the last computation
	u32 packets; // acknowledged ones for one packet of growth
	u64 computed; // microseconds
};

// Functions of the kernel.
extern u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern u32 tcp_slow_start(struct tcp_sock *tp, u32 acked) __ksym;
extern void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked) __ksym;

static struct lia *coupling_of(struct sock *sk)
{
	return (struct lia *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

// The entry of this socket with a window.
static struct lia_subflow subflow_of(const struct sock *sk, u32 window)
{
	return lia_subflow(window, ((const struct tcp_sock *)sk)->srtt_us >> 3);
}

// Takes a free slot of the connection. Without one, the socket has no token and is not coupled.
static void join(struct sock *sk)
{
	const struct mptcp_subflow_context *context =
		((struct inet_connection_sock *)sk)->icsk_ulp_data;
	struct lia *own = coupling_of(sk);
	struct lia_key key = { .token = BPF_CORE_READ(context, token) };
	struct lia_subflow now = subflow_of(sk, ((struct tcp_sock *)sk)->snd_cwnd);

	if (!key.token)
		return;
	for (u32 slot = 0; slot < LIA_MAX_SUBFLOWS; slot++) {
		key.slot = slot;
		if (!bpf_map_update_elem(&subflows, &key, &now, BPF_NOEXIST)) {
			own->key.slot = slot;
			own->key.token = key.token;
			return;
		}
	}
}

// Shows a window of this socket to the other subflows of its connection.
static void publish(struct sock *sk, u32 window)
{
	struct lia_key key = coupling_of(sk)->key;
	struct lia_subflow now = subflow_of(sk, window);

	if (key.token)
		bpf_map_update_elem(&subflows, &key, &now, BPF_EXIST);
}

// The growth that the subflows of a connection permit, from their entries.
static u32 coupled_growth(u32 token)
{
	struct lia_subflow all[LIA_MAX_SUBFLOWS];

	for (u32 slot = 0; slot < LIA_MAX_SUBFLOWS; slot++) {
		struct lia_key key = { .token = token, .slot = slot };

		// Zeros if there is no entry. A branch here would double the work of the verifier in
		// each turn, until it refuses the program.
		bpf_probe_read_kernel(&all[slot], sizeof(all[slot]),
				      bpf_map_lookup_elem(&subflows, &key));
	}
	return lia_packets_for_growth(all);
}

// As in the kernel: a window that is not used does not grow.
static bool is_window_limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

SEC("struct_ops/init")
void BPF_PROG(lia_init, struct sock *sk)
{
	struct lia *own = coupling_of(sk);

	own->key.token = 0;
	own->window = 0;
}

SEC("struct_ops/release")
void BPF_PROG(lia_release, struct sock *sk)
{
	struct lia *own = coupling_of(sk);
	struct lia_key key = own->key;

	if (key.token)
		bpf_map_delete_elem(&subflows, &key);
	own->key.token = 0;
}

SEC("struct_ops/cong_avoid")
void BPF_PROG(lia_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct lia *own = coupling_of(sk);

	if (!tp->is_mptcp) {
		tcp_reno_cong_avoid(sk, ack, acked);
		return;
	}
	bool is_grown = tp->snd_cwnd != own->window;
	if (is_grown || tp->tcp_mstamp - own->computed > tp->srtt_us >> 3) {
		if (own->key.token)
			publish(sk, tp->snd_cwnd);
		else
			join(sk);
		own->window = tp->snd_cwnd;
		own->computed = tp->tcp_mstamp;
		own->packets = own->key.token ? coupled_growth(own->key.token) : 0;
	}
	if (!is_window_limited(tp))
		return;
	if (tp->snd_cwnd < tp->snd_ssthresh) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	u32 packets = own->packets;
	tcp_cong_avoid_ai(tp, packets > tp->snd_cwnd ? packets : tp->snd_cwnd, acked);
}

SEC("struct_ops/ssthresh")
u32 BPF_PROG(lia_ssthresh, struct sock *sk)
{
	u32 window = tcp_reno_ssthresh(sk);

	publish(sk, window);
	return window;
}

// After a timeout, the window is smaller than the threshold. A path that has failed must not slow
// the others down until it answers again.
SEC("struct_ops/set_state")
void BPF_PROG(lia_set_state, struct sock *sk, u8 state)
{
	if (state == TCP_CA_Loss)
		publish(sk, ((struct tcp_sock *)sk)->snd_cwnd);
}

SEC("struct_ops/undo_cwnd")
u32 BPF_PROG(lia_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

// `bpftool struct_ops` finds it by the name of the variable.
SEC(".struct_ops")
struct tcp_congestion_ops LIA_NAME = {
	.init = (void *)lia_init,
	.release = (void *)lia_release,
	.cong_avoid = (void *)lia_cong_avoid,
	.ssthresh = (void *)lia_ssthresh,
	.set_state = (void *)lia_set_state,
	.undo_cwnd = (void *)lia_undo_cwnd,
	.name = TEXT(LIA_NAME),
};
