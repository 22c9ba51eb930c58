// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// What measures the pipeline in the kernel: requests made there, so that nothing else is in the
// way. Loaded for a measurement only (crates/xdp/src/measure.rs); a switch knows nothing of it.
//
// `measure_build` makes the next request, `measure_packet` takes it through the pipeline too, both
// in the frame of a BPF_PROG_TEST_RUN that repeats them. `measure_generate` sends it on to an
// interface, and `measure_sink` is where what comes back ends. `measure_bounce`, in the datapath's
// place, only sends frames back: what generator, drivers and sink take by themselves.
#include "xdp.bpf.c"

#define MEASURE_HEAD_BYTES 192u
#define MEASURE_KEY_BYTES  16u
#define MEASURE_LANES      256u // of each CPU
// The first request's number, above those that filled the tables.
#define MEASURE_FIRST    (1ull << 32)
#define MEASURE_REQUESTS (1u << 18)

struct measure_settings {
    u32 frame_bytes;
    u32 value_bytes;
    u32 ifindex; // where requests are sent
    u32 sends;   // whether the verdict is carried out, too
    u64 head[MEASURE_HEAD_BYTES / 8];
};

struct measure_request {
    u64 hash_high; // big-endian
    u64 hash_low;
    u64 key[MEASURE_KEY_BYTES / 8];
};

struct measure_state {
    u64 request;
    u64 returned;
};

_Static_assert(sizeof(struct frame_v4) + sizeof(struct wire) <= MEASURE_HEAD_BYTES,
               "a request's head");

MAP(measure_setting, BPF_MAP_TYPE_ARRAY, u32, struct measure_settings, 1);
MAP(measure_requests, BPF_MAP_TYPE_ARRAY, u32, struct measure_request, MEASURE_REQUESTS);
MAP(measure_states, BPF_MAP_TYPE_PERCPU_ARRAY, u32, struct measure_state, 1);

// An answer's frame becomes a request's again, at both ends as packet_resize() left it.
STEP bool measure_shorten(struct xdp_md *frame, int bytes)
{
    int head = bytes < HEAD_BYTES_MAX ? bytes : HEAD_BYTES_MAX;
    if (head > 0 && bpf_xdp_adjust_head(frame, head) != 0) {
        return false;
    }
    int tail = head > 0 ? bytes - head : bytes;
    return tail == 0 || bpf_xdp_adjust_tail(frame, -tail) == 0;
}

// The next request in the frame, whatever is in it.
STEP struct measure_settings *measure_next(struct xdp_md *frame)
{
    u32 zero = 0;
    struct measure_settings *settings = bpf_map_lookup_elem(&measure_setting, &zero);
    struct measure_state *state = bpf_map_lookup_elem(&measure_states, &zero);
    if (settings == NULL || state == NULL) {
        return NULL;
    }
    u32 cpu = bpf_get_smp_processor_id();
    // Each CPU begins elsewhere.
    u32 index = ((u32)++state->request + cpu * 7919) & (MEASURE_REQUESTS - 1);
    struct measure_request *request = bpf_map_lookup_elem(&measure_requests, &index);
    // In 64 bits: the verifier knows these as pointers.
    u64 end = (u64)frame->data_end, data = (u64)frame->data;
    forget(end);
    forget(data);
    if (request == NULL ||
        !measure_shorten(frame, (int)(end - data) - (int)settings->frame_bytes)) {
        return NULL;
    }
    barrier();
    u64 *head = (void *)(long)frame->data;
    struct wire *wire = (void *)head + sizeof(struct frame_v4);
    if ((void *)head + MEASURE_HEAD_BYTES > (void *)(long)frame->data_end) {
        return NULL;
    }
    for (u32 i = 0; i < MEASURE_HEAD_BYTES / 8; i++) {
        head[i] = settings->head[i];
    }
    wire->request = to_be64(MEASURE_FIRST + state->request);
    wire->lane = to_be32(cpu * MEASURE_LANES + ((u32)state->request & (MEASURE_LANES - 1)));
    wire->hash_high = request->hash_high;
    wire->hash_low = request->hash_low;
    wire->routing_high = request->hash_high;
    wire->routing_low = request->hash_low;
    u32 key_at = sizeof(struct frame_v4) + HEADER_BYTES + settings->value_bytes;
    return packet_store(frame, key_at, request->key, MEASURE_KEY_BYTES, 64) ? settings : NULL;
}

SEC("xdp")
int measure_build(struct xdp_md *frame)
{
    return measure_next(frame) != NULL ? XDP_PASS : XDP_ABORTED;
}

SEC("xdp")
int measure_packet(struct xdp_md *frame)
{
    struct measure_settings *settings = measure_next(frame);
    struct call call = {.location = NO_LOCATION};
    if (settings == NULL || !frame_parse(frame, &call) || !tables_begin(&call)) {
        return XDP_ABORTED;
    }
    u32 verdict = pipeline((struct packet *)(void *)frame, &call);
    if (is_drop(verdict) || verdict == TAKEN) {
        return XDP_DROP;
    }
    return settings->sends ? frame_send(frame, &call, verdict) : XDP_PASS;
}

SEC("xdp")
int measure_generate(struct xdp_md *frame)
{
    struct measure_settings *settings = measure_next(frame);
    return settings != NULL ? (int)bpf_redirect(settings->ifindex, 0) : XDP_ABORTED;
}

SEC("xdp")
int measure_bounce(struct xdp_md *frame)
{
    struct ethhdr *ethernet = (void *)(long)frame->data;
    if ((void *)(ethernet + 1) > (void *)(long)frame->data_end) {
        return XDP_DROP;
    }
    u8 ours[ETH_ALEN];
    __builtin_memcpy(ours, ethernet->h_dest, ETH_ALEN);
    __builtin_memcpy(ethernet->h_dest, ethernet->h_source, ETH_ALEN);
    __builtin_memcpy(ethernet->h_source, ours, ETH_ALEN);
    return XDP_TX;
}

SEC("xdp")
int measure_sink(struct xdp_md *frame)
{
    u32 zero = 0;
    struct measure_state *state = bpf_map_lookup_elem(&measure_states, &zero);
    (void)frame;
    if (state != NULL) {
        state->returned += 1;
    }
    return XDP_DROP;
}
