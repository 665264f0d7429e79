"""Writes captures whose truth is known: bytes of Ethernet, IPv4 and TCP, at given times."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, field
from pathlib import Path

SYN, ACK, PSH, FIN = 0x02, 0x10, 0x08, 0x01
EPOCH = 1_700_000_000
MSS = 1000


@dataclass
class Capture:
    """Packets, in any order."""

    packets: list[tuple[float, bytes]] = field(default_factory=list)

    def add(self, at: float, ip: bytes) -> None:
        kind = b"\x86\xdd" if ip[0] >> 4 == 6 else b"\x08\x00"
        self.packets.append((at, b"\2" * 6 + b"\4" * 6 + kind + ip))

    def cut(self, *places: int) -> list[Capture]:
        """The same in parts: the second one begins with the packet of the first of these numbers."""
        packets = sorted(self.packets, key=lambda packet: packet[0])
        ends = [0, *places, len(packets)]
        return [Capture(packets[begin:end]) for begin, end in zip(ends, ends[1:], strict=False)]

    def bytes(self) -> bytes:
        """A pcap file with nanoseconds, in the order of time."""
        out = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)]
        for at, frame in sorted(self.packets, key=lambda packet: packet[0]):
            nanos = round(at * 1e9)
            head = (EPOCH + nanos // 10**9, nanos % 10**9, len(frame), len(frame))
            out += [struct.pack("<IIII", *head), frame]
        return b"".join(out)

    def pcapng(self, snap: int) -> bytes:
        """As pcapng with nanoseconds and two interfaces, Ethernet and bare IP, which take turns. Of
        each packet so many bytes were captured."""

        def block(kind: int, content: bytes) -> bytes:
            content += b"\0" * (-len(content) % 4)
            length = struct.pack("<I", len(content) + 12)
            return struct.pack("<I", kind) + length + content + length

        out = [block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
        for link in (1, 101):
            out.append(block(1, struct.pack("<HHIHHI", link, 0, snap, 9, 1, 9) + b"\0" * 4))
        for at, frame in sorted(self.packets, key=lambda packet: packet[0]):
            nanos = EPOCH * 10**9 + round(at * 1e9)
            interface = round(at * 1e3) % 2
            frame = frame[14:] if interface else frame
            head = (interface, nanos >> 32, nanos & 0xFFFFFFFF, len(frame[:snap]), len(frame))
            out.append(block(6, struct.pack("<5I", *head) + frame[:snap]))
        return b"".join(out)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path


def ip(source: str, destination: str, protocol: int, payload: bytes) -> bytes:
    """A packet of IPv4 or IPv6, as the addresses are."""
    if ":" not in source:
        return ipv4(source, destination, protocol, payload)
    ends = ipaddress.ip_address(source).packed + ipaddress.ip_address(destination).packed
    return struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + ends + payload


def ipv4(
    source: str, destination: str, protocol: int, payload: bytes, id: int = 0, fragment: int = 0
) -> bytes:
    ends = ipaddress.ip_address(source).packed + ipaddress.ip_address(destination).packed
    length = 20 + len(payload)
    return struct.pack(">BBHHHBBH", 0x45, 0, length, id, fragment, 64, protocol, 0) + ends + payload


@dataclass
class Http:
    """A flow of HTTP/1.1. The capture point is beside the client: `local` there and back, and the
    rest of the round trip behind it. A request for each of `responses`."""

    client: str
    server: str
    began: float
    port: int = 40000
    # Of each: content type, bytes of content, time from the request to the response's first byte,
    # time from that to its last byte, and time to the next request.
    responses: tuple[tuple[str, int, float, float, float], ...] = ()
    local: float = 0.002
    remote: float = 0.050
    wait: float = 0.010
    method: str = "GET"
    agent: str = ""
    host: str = "www.example.com"
    window: int = 60000
    declared: int | None = None

    def put(self, capture: Capture) -> None:
        ends = {"up": [10_000, 0], "down": [90_000, 0]}

        def segment(at: float, way: str, flags: int, payload: bytes = b"", options: bytes = b""):
            mine, other = ends[way], ends["down" if way == "up" else "up"]
            ports = (self.port, 80) if way == "up" else (80, self.port)
            head = struct.pack(
                ">HHIIBBHHH", *ports, mine[0], other[0] if flags & ACK else 0,
                (20 + len(options)) // 4 << 4, flags, self.window, 0, 0,
            )  # fmt: skip
            pair = (self.client, self.server) if way == "up" else (self.server, self.client)
            capture.add(at, ip(*pair, 6, head + options + payload))
            mine[0] += len(payload) + (1 if flags & (SYN | FIN) else 0)

        mss = struct.pack(">BBH", 2, 4, MSS)
        at = self.began
        segment(at, "up", SYN, options=mss)
        at += self.remote
        segment(at, "down", SYN | ACK, options=mss)
        at += self.local
        segment(at, "up", ACK)
        at += self.wait
        for kind, length, response, lasts, gap in self.responses:
            request = f"{self.method} /a HTTP/1.1\r\nHost: {self.host}\r\n"
            request += f"User-Agent: {self.agent}\r\n" if self.agent else ""
            segment(at, "up", ACK | PSH, request.encode() + b"\r\n")
            declared = length if self.declared is None else self.declared
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {declared}\r\n\r\n"
            whole = head.encode() + b"x" * length
            pieces = [whole[i : i + MSS] for i in range(0, len(whole), MSS)]
            begin = at + response
            for index, piece in enumerate(pieces):
                share = index / (len(pieces) - 1) if len(pieces) > 1 else 0
                segment(begin + lasts * share, "down", ACK | PSH, piece)
            # The last acknowledgement alone: it says how far the client is.
            at = begin + lasts
            segment(at + self.local, "up", ACK)
            at += gap
        segment(at, "up", FIN | ACK)
        segment(at + self.remote, "down", FIN | ACK)
        segment(at + self.remote + self.local, "up", ACK)


def dns(capture: Capture, client: str, server: str, at: float, latency: float, name: str) -> None:
    """A question for an address, and its answer."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"
    question = labels + struct.pack(">HH", 1, 1)
    answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + b"\xc0\0\2\1"
    number = round(at * 1000) & 0xFFFF
    asked = struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + question
    told = struct.pack(">6H", number, 0x8180, 1, 1, 0, 0) + question + answer
    port = 50_000
    ends = ((at, client, server, port, 53, asked), (at + latency, server, client, 53, port, told))
    for when, source, destination, here, there, message in ends:
        head = struct.pack(">HHHH", here, there, 8 + len(message), 0)
        capture.add(when, ipv4(source, destination, 17, head + message))


@dataclass
class Talk:
    """A TCP flow in which both ends say something, 20 ms apart: who, and what."""

    client: str
    server: str
    began: float
    port: int
    server_port: int = 443
    number: int = 10_000

    def put(self, capture: Capture, *says: tuple[str, bytes], gap: float = 0.020) -> None:
        ends, at = {"up": [self.number, 0], "down": [self.number * 3, 0]}, self.began
        words = [("up", SYN, b""), ("down", SYN | ACK, b""), ("up", ACK, b"")]
        words += [(way, ACK | PSH, text) for way, text in says]
        words += [("up", FIN | ACK, b""), ("down", FIN | ACK, b""), ("up", ACK, b"")]
        for way, flags, payload in words:
            mine, other = ends[way], ends["down" if way == "up" else "up"]
            pair = (self.client, self.server)
            ports = (self.port, self.server_port)
            pair, ports = (pair, ports) if way == "up" else (pair[::-1], ports[::-1])
            acked = other[0] if flags & ACK else 0
            head = struct.pack(">HHIIBBHHH", *ports, mine[0], acked, 5 << 4, flags, 60_000, 0, 0)
            capture.add(at, ip(*pair, 6, head + payload))
            mine[0] += len(payload) + (1 if flags & (SYN | FIN) else 0)
            at += gap


def datagrams(
    capture: Capture, client: str, server: str, port: int, times: list[float], length: int = 200
) -> None:
    """There and back, again and again, all in two fragments that pass 1 ms apart where they are of
    IPv4 and longer than 1,000 bytes."""
    for index, at in enumerate(times):
        ports = (port, 7_000) if index % 2 == 0 else (7_000, port)
        pair = (client, server) if index % 2 == 0 else (server, client)
        whole = struct.pack(">HHHH", *ports, 8 + length, 0) + b"y" * length
        if length <= 1_000:
            capture.add(at, ip(*pair, 17, whole))
            continue
        id = port * 100 + index & 0xFFFF
        capture.add(at, ipv4(*pair, 17, whole[:800], id, 0x2000))
        capture.add(at + 0.001, ipv4(*pair, 17, whole[800:], id, 100))
