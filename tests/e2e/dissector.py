"""Compares what tshark reads from a capture with what docs/understand/protocol.md says is there."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

SCRIPT = "tools/wireshark/switchback.lua"
HEADER_BYTES = 144
# Racks that between them stage large values, scan, delete and bounce; PACKETS_MAX of each.
SEEDS = (0, 1, 8)
PACKETS_MAX = 6000
PACKETS_MIN = 1000
FRAME_BYTES = 40 + 8  # IPv6, UDP
FLAGS = {"hot": 1, "cached": 2, "fenced": 4, "embedded": 8, "conditional": 16, "large": 32,
         "delete": 64}


def layout():
    """Fields of the header by the table of the protocol: name, offset, bytes."""
    text = Path("docs/understand/protocol.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([a-z_ ]+) \|", text, re.MULTILINE)
    fields = [(name.strip().replace(" ", "_"), int(offset), int(length))
              for offset, length, name in rows]
    end = 0
    for name, offset, length in fields:
        assert offset == end, f"{name} begins at {offset}, and what is before it ends at {end}"
        end = offset + length
    assert end == HEADER_BYTES, f"the table ends at {end}"
    return fields


def packets(path):
    """The payloads of a capture file's packets."""
    data = Path(path).read_bytes()
    magic, _, _, _, _, _, link = struct.unpack_from("<IHHiIII", data)
    assert (magic, link) == (0xA1B2C3D4, 101), "not a capture of raw IP in microseconds"
    at = 24
    while at < len(data):
        _, _, captured, original = struct.unpack_from("<IIII", data, at)
        assert captured == original
        yield data[at + 16 + FRAME_BYTES : at + 16 + captured]
        at += 16 + captured
    assert at == len(data), "the last packet is cut off"


def tshark(path, *arguments):
    command = ["tshark", "-X", f"lua_script:{SCRIPT}", "-o", "udp.check_checksum:TRUE",
               "-r", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def number(text):
    """A number as tshark prints it: decimal, hexadecimal, bytes, or an IPv6 address."""
    if ":" in text:
        import ipaddress

        return int(ipaddress.IPv6Address(text))
    return int(text, 16 if text.startswith("0x") else 10)


def compare(path):
    fields = layout()
    names = [name for name, _, _ in fields]
    more = ["key", "value", "seq.epoch", "seq.counter", "guard.counter",
            *(f"flags.{flag}" for flag in FLAGS)]
    wanted = [argument for name in names + more for argument in ("-e", f"switchback.{name}")]
    count = ("-c", str(PACKETS_MAX))
    lines = tshark(path, *count, "-T", "fields", "-E", "separator=/t", *wanted)
    payloads = list(packets(path))[:PACKETS_MAX]
    assert len(lines) == len(payloads) >= PACKETS_MIN, f"{len(lines)} of {len(payloads)} packets"
    ops = set()
    for at, (line, payload) in enumerate(zip(lines, payloads), 1):
        shown = dict(zip(names + more, line.split("\t")))
        for name, offset, length in fields:
            expected = int.from_bytes(payload[offset : offset + length], "big")
            text = shown[name]
            got = int(text, 16) if name in ("key_hash", "routing") else number(text)
            assert got == expected, f"packet {at}: {name} is {text}, and ought to be {expected}"
        value_bytes = int(shown["value_bytes"])
        value = payload[HEADER_BYTES : HEADER_BYTES + value_bytes]
        key = payload[HEADER_BYTES + value_bytes :]
        assert shown["value"] == value.hex(), f"packet {at}: value {shown['value']}"
        if key.isascii() and key.decode().isprintable():
            assert shown["key"] == key.decode(), f"packet {at}: key {shown['key']}"
        assert int(shown["seq.epoch"]) == int.from_bytes(payload[16:19], "big")
        assert int(shown["seq.counter"]) == int.from_bytes(payload[19:24], "big")
        assert int(shown["guard.counter"]) == int.from_bytes(payload[27:32], "big")
        flags = int.from_bytes(payload[4:6], "big")
        for flag, bit in FLAGS.items():
            wanted = ("1", "True") if flags & bit else ("0", "False")
            assert shown[f"flags.{flag}"] in wanted, f"packet {at}: {flag}"
        ops.add(payload[3])
    bad = tshark(path, *count, "-Y", "udp.checksum.status == 0 || switchback.malformed")
    assert not bad, bad[:3]
    print(f"ok: {len(payloads)} packets of {len(ops)} operations, {len(fields)} fields each")


def bad_packets(path, work):
    """What is cut off or too long is said to be, and what isn't ours is left alone."""
    data = Path(path).read_bytes()
    captured = struct.unpack_from("<I", data, 24 + 8)[0]
    first = data[40 : 40 + captured]

    def frame(payload):
        length = 8 + len(payload)
        ip = first[:4] + struct.pack(">H", length) + first[6:40]
        return ip + first[40:44] + struct.pack(">HH", length, 0) + payload

    payload = first[FRAME_BYTES:]
    frames = [frame(part) for part in (payload[:50], payload + b"x",
                                       b"\x53\x57\x01\x70" + payload[4:], b"SW")]
    bad = Path(work) / "bad.pcap"
    records = (struct.pack("<IIII", 0, 0, len(part), len(part)) + part for part in frames)
    bad.write_bytes(data[:24] + b"".join(records))
    lines = tshark(bad, "-T", "fields", "-E", "separator=/t",
                   "-e", "switchback.malformed", "-e", "frame.protocols")
    ours = ["switchback" in line.split("\t")[1] for line in lines]
    complaints = [bool(line.split("\t")[0]) for line in lines]
    assert (ours, complaints) == ([True, True, False, False], [True, True, False, False]), lines
    print("ok: malformed packets are told apart")
    cut_off(data[:24], first, work)


def cut_off(head, packet, work):
    """A packet of which a capture has only the beginning is taken apart as far as that goes, and
    isn't called malformed."""
    lengths = (FRAME_BYTES + 10, FRAME_BYTES + HEADER_BYTES, len(packet) - 1)
    records = (struct.pack("<IIII", 0, 0, length, len(packet)) + packet[:length]
               for length in lengths)
    capture = Path(work) / "cut_off.pcap"
    capture.write_bytes(head + b"".join(records))
    lines = tshark(capture, "-T", "fields", "-E", "separator=/t",
                   "-e", "switchback.malformed", "-e", "switchback.op")
    shown = [line.split("\t") for line in lines]
    assert [malformed for malformed, _ in shown] == ["", "", ""], lines
    assert [bool(op) for _, op in shown] == [False, True, True], lines
    told = [line for line in tshark(capture, "-V")
            if line.startswith("Switchback") and "cut off by the capture" in line]
    assert len(told) == 3, told
    print("ok: packets that the capture cut off are no malformed ones")


def main():
    work = sys.argv[1]
    capture = Path(work) / "sim.pcap"
    for seed in SEEDS:
        arguments = ["lab", "sim", "--seed", str(seed), "--scheme", "farreach", "--mild", "calm",
                     "--pcap", str(capture)]
        done = subprocess.run([os.environ["SWITCHBACK"], *arguments], capture_output=True,
                              text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        compare(capture)
    bad_packets(capture, work)
    line = tshark(capture, "-c", "1")[0]
    assert "Switchback" in line and "lane" in line, line


main()
