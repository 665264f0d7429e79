"""Chooses the paths of auto rules, through the control socket of the client in this lab.

move.py choose GOAL PATH...: one choice; prints the answer.
move.py lease SECONDS GOAL PATH...: one choice with a lease; prints the answer.
move.py move HOST FILE COUNT: downloads FILE, and moves it COUNT times between Wi-Fi and LTE. Prints the path and
the milliseconds from the request to the first packet of data on this path, by the clock of the kernel.
"""

import json
import os
import select
import socket
import struct
import sys
import time

LAB = os.environ["LAB_DIR"]
SO_TIMESTAMPNS = 35
PACKET_HOST = 0
# Acknowledgements and signs of life are smaller.
DATA = 600
# The queue of a link is empty after half of this time.
SILENCE = 0.3


def choose(goal, paths, **more):
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(LAB + "/bond-client-default.socket")
        control.sendall(json.dumps({"choose": {"goal": goal, "paths": paths, **more}}).encode() + b"\n")
        return json.loads(control.makefile().readline())


class Path:
    def __init__(self, name):
        self.name, self.first, self.last, self.bytes = name, None, time.time(), 0
        self.tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.tap.bind((name, 0))

    def receive(self):
        data, more, _, sender = self.tap.recvmsg(65536, 1024)
        if sender[2] == PACKET_HOST and len(data) > DATA:
            seconds, nanos = struct.unpack("ll", more[0][2])
            self.last = seconds + nanos / 1e9
            self.first = self.first or self.last
            self.bytes += len(data)

    def is_silent(self):
        return time.time() - self.last > SILENCE


class Download:
    """A download through the client's proxy. Its bytes are compared as they arrive."""

    def __init__(self, host, file):
        with open(f"{LAB}/nginx-origin/www/{file}", "rb") as right:
            self.right = right.read()
        self.paths = [Path("wifi"), Path("lte")]
        self.socket = socket.create_connection(("127.0.0.1", 1080))
        read = self.socket.makefile("rb", buffering=0)
        self.socket.sendall(b"\x05\x01\x00")
        assert read.read(2) == b"\x05\x00"
        self.socket.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(host) + struct.pack(">H", 80))
        assert read.read(10)[1] == 0
        self.socket.sendall(f"GET /{file} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        while read.readline() not in (b"\r\n", b""):
            pass
        self.at = 0

    def until(self, is_done):
        while not is_done():
            taps = {path.tap: path for path in self.paths}
            ready, _, _ = select.select([self.socket, *taps], [], [], 0.01)
            for one in ready:
                if one in taps:
                    taps[one].receive()
                    continue
                data = self.socket.recv(65536)
                if self.right[self.at : self.at + len(data)] != data:
                    sys.exit("manyways-" + f"fault: wrong bytes after {self.at}")
                self.at += len(data)
                if not data:
                    return self.at

    def move(self, to, other):
        self.until(to.is_silent)
        to.first, before, since = None, to.bytes, time.time()
        assert choose("fast", [to.name]) == "chosen"
        self.until(lambda: to.first)
        print(to.name, round((to.first - since) * 1000, 1), flush=True)
        self.until(lambda: to.bytes > before + 100_000)
        self.until(other.is_silent)


def main(command, first, *others):
    if command == "choose":
        print(json.dumps(choose(first, list(others))))
        return
    if command == "lease":
        print(json.dumps(choose(others[0], list(others[1:]), lease_seconds=float(first))))
        return
    download = Download(first, others[0])
    wifi, lte = download.paths
    download.until(lambda: wifi.bytes > 100_000)
    assert lte.bytes == 0, "only Wi-Fi is chosen"
    for _ in range(int(others[1]) // 2):
        download.move(lte, wifi)
        download.move(wifi, lte)
    assert choose("fast", []) == "chosen"
    if download.until(lambda: False) != len(download.right):
        sys.exit("manyways-" + f"fault: {download.at} of {len(download.right)} bytes")
    print("complete")


main(*sys.argv[1:])
