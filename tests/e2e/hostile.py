"""Hostile peers on the data, control and RESP ports of a rack of real processes: packets replayed,
recombined, cut off and random, claims of long frames, half frames, thousands of connections. No
process ends or takes more memory than is stated here, and clients are served meanwhile and after.
Run by hostile.sh, which says what this machine can't do: `--without fragments`,
`--without connections` (fewer of these).
"""

import argparse
import ctypes
import itertools
import os
import random
import re
import resource
import socket
import struct
import time

from checks import PATIENCE_S
from rack import Client, Rack, Writers, temporary

SEED = int(os.environ.get("HOSTILE_SEED", random.randrange(1_000_000)))
CONNECTIONS = 10_000
# What a process may take at most beyond what it took before the first hostile peer came: what is
# staged (64 MiB), what waits for the controller (64 MiB) and the buffers of the connections that
# have a place, twice.
GROWTH_MAX_MB = 384


def constant(file, name):
    """A number as the sources have it, so that what is sent is of this version."""
    declaration = rf"^\s*(?:(?:pub(?:\(crate\))? )?const )?{name}(?:: \w+)? = (0x[0-9a-f_]+|\d+)[;,]$"
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                           "../../crates", file)) as source:
        [found] = re.findall(declaration, source.read(), re.MULTILINE)
    return int(found, 0)


def field(name):
    """Where the header has a field, as the datapath asserts it of its C structure."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                           "../../datapath/wire.h")) as source:
        [(offset, length)] = re.findall(rf"^ +X\({name}, (\d+), (\d+)\)", source.read(),
                                        re.MULTILINE)
    return slice(int(offset), int(offset) + int(length))


VERSION = constant("wire/src/lib.rs", "VERSION")
HEADER_BYTES = constant("wire/src/lib.rs", "HEADER_BYTES")
FRAGMENT = constant("wire/src/op.rs", "Fragment")
FRAGMENT_REPLY = constant("wire/src/op.rs", "FragmentReply")
OP = field("op").start
# What tells the fragments of one value from those of another: these and the key; and the place of
# one among them.
VALUE_FIELDS = [field("lane"), field("request"), field("total_bytes")]
KEY_FIELDS = [field("hash_high"), field("hash_low")]
PLACE_FIELDS = [field("fragment_index"), field("fragment_count")]
MAGIC = constant("net/src/tcp/handshake.rs", "MAGIC")
CONTROL_VERSION = constant("core/src/control.rs", "VIEWS_VERSION")
CLIENT, NODE = b"\x03", b"\x02"
ETH_P_IP = 0x0800
SO_RCVBUFFORCE, SO_ATTACH_FILTER = 33, 26


def peak_mb(process):
    with open(f"/proc/{process.pid}/status") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read()).group(1)) // 1024


def addresses_of(config):
    """The ports of the rack, by what listens there."""
    with open(config) as file:
        text = file.read()
    found = lambda section, name: re.findall(
        rf'\[+{section}\]+\n(?:[^\[]*?\n)?{name} = "([^"]+)"', text)
    pair = lambda address: (address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1]))
    return {
        "switches": [pair(address) for address in found("switch", "address")],
        "nodes": [pair(address) for address in found("node", "address")],
        "controller": pair(found("controller", "listen")[0]),
        "gateway": pair(found("gateway", "resp")[0]),
    }


def varint(number):
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7f | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def frame(body):
    return struct.pack(">I", len(body)) + body


def introduction(number, kind=CLIENT):
    """As client number `number`, or another part, introduces itself to the controller."""
    return frame(varint(MAGIC << 16 | CONTROL_VERSION) + kind + varint(number)
                 + varint(CONTROL_VERSION))


def value_of(fragment):
    """Which value a fragment says that it is of."""
    return tuple(bytes(fragment[of]) for of in VALUE_FIELDS + KEY_FIELDS)


def of_host(host):
    """A classic BPF program that takes UDP packets from or to an IPv4 address, as bytes."""
    number = int.from_bytes(socket.inet_aton(host), "big")
    steps = [
        (0x30, 0, 0, 9),  # the protocol
        (0x15, 0, 5, socket.IPPROTO_UDP),  # if it is another, to the end
        (0x20, 0, 0, 12),  # the source
        (0x15, 2, 0, number),
        (0x20, 0, 0, 16),  # the destination
        (0x15, 0, 1, number),
        (0x06, 0, 0, 0xffffffff),  # the whole packet
        (0x06, 0, 0, 0),  # nothing
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def listen(host):
    """A socket that hears the UDP packets of this machine to itself, from or to an address."""
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    # Packets of other tests would fill the buffer before they are looked at.
    program = ctypes.create_string_buffer(of_host(host))
    attached = struct.pack("HP", len(program) // 8, ctypes.addressof(program))
    sniffer.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, attached)
    try:
        sniffer.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    except PermissionError:
        sniffer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    sniffer.settimeout(1)
    sniffer.bind(("lo", ETH_P_IP))
    return sniffer


class Hostile:
    def __init__(self, rack, without):
        self.without = without
        self.rack, self.random = rack, random.Random(SEED)
        self.addresses = addresses_of(rack.config)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.open = []

    def host(self):
        """The address that all parts of the rack are on."""
        [host] = {host for host, _ in self.data_ports()}
        return host

    def data_ports(self):
        return self.addresses["switches"] + self.addresses["nodes"]

    def heard(self, sniffer, seconds):
        """Packets of the rack, for this long or until there is none for a second."""
        ports, until = {port for _, port in self.data_ports()}, time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                packet = sniffer.recv(65536)
            except TimeoutError:
                return
            start = 4 * (packet[0] & 15)
            # To a port of the rack, or from one.
            ends = [int.from_bytes(packet[start + at:start + at + 2], "big") for at in (0, 2)]
            content = packet[start + 8:]
            of_rack = packet[9] == socket.IPPROTO_UDP and not ports.isdisjoint(ends)
            if of_rack and content[:2] == b"SW" and len(content) >= HEADER_BYTES:
                yield content

    def sniffed(self):
        """Packets of a client that stages large values under keys of different lengths."""
        sniffer = listen(self.host())
        client = Client(self.rack.resp)
        for key_bytes in (1, 100, 1000):
            client.run("SET", "k" * key_bytes, "v" * 60_000)
            client.run("GET", "k" * key_bytes)
        client.close()
        packets = list(itertools.islice(self.heard(sniffer, 10), 10_000))
        sniffer.close()
        return packets

    def spray(self, packets):
        for packet in packets:
            for address in self.data_ports():
                try:
                    self.udp.sendto(packet, address)
                except OSError:
                    pass  # a full queue: what a network would drop

    def nonsense(self):
        def packet():
            head = b"SW" + bytes([VERSION]) if self.random.random() < 0.5 else b""
            return head + self.random.randbytes(self.random.randrange(1500))
        self.spray(packet() for _ in range(5_000))

    def replayed_and_recombined(self):
        if "fragments" in self.without:
            return
        # Fragments are of an epoch, and another one begins now and then if this machine is busy.
        for _ in range(10):
            packets = self.sniffed()
            recombined = self.recombined(packets)
            if self.is_staged(recombined, packets):
                break
        else:
            raise AssertionError(
                "no recombined fragment was staged: what is refused at once attacks nothing")
        cut = [packet[:self.random.randrange(len(packet))] for packet in packets]
        self.spray(packets + recombined + cut)

    def recombined(self, packets):
        """Fragments that say that they are of another value than they are."""
        fragments = [packet for packet in packets if packet[OP] == FRAGMENT]
        lengths = {len(packet) for packet in fragments}
        assert len(lengths) > 1, "values were staged under several keys"
        recombined = []
        for _ in range(5_000):
            one, other = bytearray(self.random.choice(fragments)), self.random.choice(fragments)
            # The lane and the request, and perhaps the length and the index, of another value.
            taken = VALUE_FIELDS[:2]
            if self.random.random() < 0.8:
                taken = taken + VALUE_FIELDS[2:]
            if self.random.random() < 0.5:
                taken = taken + PLACE_FIELDS
            for of in taken:
                one[of] = other[of]
            recombined.append(bytes(one))
        return recombined

    def is_staged(self, recombined, packets):
        """Whether a node answers that it has staged one, of a value that there never was."""
        known = {value_of(packet) for packet in packets}
        strange = (packet for packet in recombined if value_of(packet) not in known)
        sniffer, sent = listen(self.host()), set()
        for packet in itertools.islice(strange, 20):
            self.spray([packet])
            sent.add(value_of(packet))
            answers = (answer for answer in self.heard(sniffer, 0.5)
                       if answer[OP] == FRAGMENT_REPLY)
            # Perhaps to an earlier one: a busy machine may answer late.
            if any(value_of(answer) in sent for answer in answers):
                return True
        return False

    def connect(self, address):
        connection = socket.socket()
        connection.settimeout(5)
        try:
            connection.connect(address)
        except OSError:
            connection.close()
            return None
        return connection

    def say(self, address, *pieces):
        connection = self.connect(address)
        if connection is None:
            return
        try:
            for piece in pieces:
                connection.sendall(piece)
        except OSError:
            pass  # it was hung up on
        self.open.append(connection)

    def check_introduction(self):
        """Fails if the controller refuses the introduction, so that nothing after it would be
        read."""
        connection = self.connect(self.addresses["controller"])
        connection.sendall(introduction(1 << 40))
        connection.settimeout(PATIENCE_S)
        welcome = frame(b"\x00" + varint(CONTROL_VERSION))
        assert connection.recv(len(welcome)) == welcome, "the controller refuses this introduction"
        connection.close()

    def control_frames(self):
        controller = self.addresses["controller"]
        self.check_introduction()
        for number in range(300):
            client = introduction(1 << 40 | number)
            self.say(controller, struct.pack(">I", 16 << 20))
            self.say(controller, b"\x00\x00")
            self.say(controller, self.random.randbytes(100))
            self.say(controller, client, struct.pack(">I", 16 << 20), b"x" * 1000)
            self.say(controller, client, struct.pack(">I", 1 << 20), b"x" * 200_000)
            self.say(controller, client, *(frame(self.random.randbytes(50)) for _ in range(10)))
            # A node that there isn't.
            self.say(controller, introduction(999, NODE))
        self.hang_up()

    def crowds(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = CONNECTIONS + 500
        limit = max(soft, min(wanted, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        count = min(CONNECTIONS, limit - 500)
        is_allowed = count == CONNECTIONS or "connections" in self.without
        assert is_allowed, f"only {hard} open files are allowed"
        for address in (self.addresses["controller"], self.addresses["gateway"]):
            for _ in range(count):
                self.say(address, b"*1\r\n$4\r\n")
            yield
            self.hang_up()

    def hang_up(self):
        for connection in self.open:
            connection.close()
        self.open.clear()


def await_writes(writers, after):
    assert writers.go_on(), f"no service after {after}"


def serves(rack, writers, after):
    """Clients are served, all processes live, and none has grown too much."""
    await_writes(writers, after)
    for name, part in rack.parts.items():
        assert part.process.poll() is None, f"{name} ended after {after}"
        grown = peak_mb(part.process) - rack.peaks_mb[name]
        assert grown <= GROWTH_MAX_MB, f"{name} grew by {grown} MiB after {after}; it may by {GROWTH_MAX_MB}"
    print(f"served after {after}: {writers.count} writes, {writers.errors} errors")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="append", default=[],
                        choices=["fragments", "connections"])
    without = parser.parse_args().without
    print(f"HOSTILE_SEED={SEED}")
    with temporary() as directory:
        rack = Rack(directory)
        writers = None
        try:
            writers = Writers(rack.resp)
            await_writes(writers, "the start")
            rack.peaks_mb = {name: peak_mb(part.process) for name, part in rack.parts.items()}
            hostile = Hostile(rack, without)
            for attack in (hostile.nonsense, hostile.replayed_and_recombined,
                           hostile.control_frames):
                attack()
                serves(rack, writers, attack.__name__)
            for _ in hostile.crowds():
                serves(rack, writers, "a crowd")
            serves(rack, writers, "the crowds' end")
            writers.stop()
            failures = writers.check(rack.resp) + writers.failures
            assert not failures, failures
            # What has no connection any more gets one.
            rack.kill("gateway")
            rack.start("gateway")
            rack.parts["gateway"].wait_ready()
            client = Client(rack.resp)
            assert client.insist("SET", "after", "all") == "OK"
            assert client.insist("GET", "after") == b"all"
        except BaseException:
            rack.logs()
            raise
        finally:
            if writers:
                writers.stopping.set()
            rack.close()


main()
