# Written by `switchback lab calibrate`, for `switchback lab experiment --profile FILE`.
# Medians of short rounds; a tenth of them were below low, a tenth above high. cpu: of the thread's CPU time.

[origin]
machine = "a \"machine\" with C:\\"
date = "2026-11-21T14:00:00Z"
commit = "0123456789ab"
method = "groups of 32"
load = [0.5, 1.0]

[node]
read_us = { median = 10.0, low = 9.0, high = 11.0, cpu = 7.5 } # a read
write_us = { median = 40.0, low = 36.0, high = 44.0 } # an unconditional write
conditional_us = { median = 50.0, low = 45.0, high = 55.00000000000001 } # a conditional write: its record is read first
read_alone_us = { median = 20.0, low = 18.0, high = 22.0 } # a read, when nothing else waits
write_alone_us = { median = 400.0, low = 360.0, high = 440.00000000000006 } # a write, when nothing else waits: it is synced for itself
mark_us = { median = 41.0, low = 36.9, high = 45.1 } # a durable mark: an offer
cache_update_us = { median = 0.25, low = 0.225, high = 0.275 } # a cached key's new value sent to the switch, and its acknowledgement taken (NetCache)
read_byte_ns = { median = 0.5, low = 0.45, high = 0.55 } # each byte of a read's value beyond 128, engine and socket, nanoseconds of CPU time
write_byte_ns = { median = 2.0, low = 1.8, high = 2.2 } # each byte of a write's value beyond 128, nanoseconds of CPU time

[pipeline]
read_hit_ns = { median = 40.0, low = 36.0, high = 44.0 } # a read that hits
write_hit_ns = { median = 60.0, low = 54.0, high = 66.0 } # a write that hits
miss_ns = { median = 30.0, low = 27.0, high = 33.0 } # a read that misses

[link]
udp_us = { median = 12.0, low = 10.8, high = 13.200000000000001 } # loopback UDP, as between processes
byte_ns = { median = 0.1, low = 0.09000000000000001, high = 0.11000000000000001 } # each byte of a packet beyond a value of 128 B, nanoseconds

[control]
delay_us = { median = 80.0, low = 72.0, high = 88.0 } # half of a round trip of short messages, microseconds
mb_per_s = { median = 500.0, low = 450.0, high = 550.0 } # chunks of a snapshot, MB/s

[agent]
entry_us = { median = 0.4, low = 0.36000000000000004, high = 0.44000000000000006 } # the admission of an entry
snapshot_record_us = { median = 0.3, low = 0.27, high = 0.33 } # a record of a snapshot

[controller]
file_ms = { median = 3.0, low = 2.7, high = 3.3000000000000003 } # a file without content, milliseconds
mb_per_s = { median = 200.0, low = 180.0, high = 220.00000000000003 } # the content of a large one, MB/s

[switch]
start_ms = { median = 8.0, low = 7.2, high = 8.8 } # its tables allocated, milliseconds; not the start of a process
