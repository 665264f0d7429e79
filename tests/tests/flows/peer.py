# Time: pauses and waits are the workload, and what is measured.
"""Both ends of the connections of these tests: plain sockets that do what they are told.

A server does what the first line of a connection says; a client says it, and prints what it
measured as one JSON object.
"""
import argparse
import json
import socket
import socketserver
import struct
import sys
import threading
import time

# Linux has it, Python has no name for it.
SO_TIMESTAMPNS = 35

BLOCK = b"manyways sends this line again and again\n" * 1600


def send(sock, count):
    while count > 0:
        count -= sock.send(BLOCK[: min(count, len(BLOCK))])


def receive(sock, count=None):
    """So many bytes, or all until the end."""
    got = 0
    while count is None or got < count:
        part = sock.recv(1 << 18 if count is None else min(1 << 18, count - got))
        if not part:
            break
        got += len(part)
    return got


class Peer(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        while line := self.rfile.readline():
            words = line.decode("latin-1").split()
            if words and words[0] == "GET":
                self.http(words[1])
            elif words and not getattr(self, words[0])(*words[1:]):
                return

    def http(self, target):
        """/BYTES?wait=SECONDS"""
        while self.rfile.readline().strip():
            pass
        size, _, wait = target[1:].partition("?wait=")
        time.sleep(float(wait or 0))
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\n\r\n"
        self.connection.send(head.encode(), socket.MSG_MORE)
        send(self.connection, int(size))

    def bulk(self, count, control=None):
        if control:
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        send(self.connection, int(count))

    def every(self, pause, count, size):
        for _ in range(int(count)):
            send(self.connection, int(size))
            time.sleep(float(pause))

    def think(self, wait, count):
        time.sleep(float(wait))
        send(self.connection, int(count))
        return True

    def take(self, count):
        left = int(count)
        while left > 0:
            part = self.rfile.read1(min(left, 1 << 18))
            if not part:
                return
            left -= len(part)
        self.connection.send(b"taken\n")

    def rest(self, wait):
        time.sleep(float(wait))


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64
    protocol = socket.IPPROTO_TCP

    def __init__(self, port):
        super().__init__(("0.0.0.0", port), Peer, bind_and_activate=False)
        self.socket.close()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, self.protocol)
        self.server_bind()
        self.server_activate()

    def handle_error(self, request, address):
        pass


class Multipath(Server):
    protocol = 262


def connect(options):
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, options.protocol)
    if options.rcvbuf:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.rcvbuf)
    if options.keepalive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, options.keepalive)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, options.keepalive)
    if options.cc:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, options.cc.encode())
    if options.bind:
        sock.bind((options.bind, 0))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.connect((options.server, options.port))
    return sock


def now():
    return time.clock_gettime(time.CLOCK_REALTIME)


def fetch(sock, count, wait):
    """When the last byte came in, by the kernel: on a busy machine this program gets it later."""
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.send(f"GET /{count}?wait={wait} HTTP/1.1\r\nHost: peer.test\r\n\r\n".encode())
    head, left, came = b"", None, None
    while left is None or left > 0:
        part, more, _, _ = sock.recvmsg(1 << 18, 1 << 8)
        assert part, "no answer"
        for level, kind, value in more:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanos = struct.unpack("ll", value)
                came = seconds + nanos / 1e9
        if left is None:
            head += part
            _, found, body = head.partition(b"\r\n\r\n")
            left = int(count) - len(body) if found else None
        else:
            left -= len(part)
    return came


def client(options):
    sock = connect(options)
    told = {"port": sock.getsockname()[1]}
    begin = now()
    words = options.words
    if words[0] == "read":
        sock.send((" ".join(words[1:]) + "\n").encode())
        time.sleep(options.stall)
        told["bytes"] = receive(sock)
    elif words[0] == "ask":
        # ask TIMES PAUSE WAIT BYTES
        for _ in range(int(words[1])):
            sock.send(f"think {words[3]} {words[4]}\n".encode())
            receive(sock, int(words[4]))
            time.sleep(float(words[2]))
    elif words[0] == "web":
        # web FIRST LAST (BYTES:WAIT:PAUSE)...
        steps = [step.split(":") for step in words[3:]]
        pauses = [words[1]] + [pause for _, _, pause in steps]
        told["fetched"], told["waited"] = [], []
        for pause, (count, wait, _) in zip(pauses, steps):
            time.sleep(float(pause))
            asked = now()
            told["waited"].append(asked - begin)
            begin = fetch(sock, count, wait)
            told["fetched"].append(begin - asked)
        time.sleep(float(pauses[-1]) + float(words[2]))
        told["waited"].append(now() - begin)
    elif words[0] == "put":
        sock.send(f"take {words[1]}\n".encode())
        send(sock, int(words[1]))
        receive(sock)
    elif words[0] == "rest":
        sock.send(f"rest {words[1]}\n".encode())
        receive(sock)
    told["seconds"] = now() - begin
    sock.close()
    print(json.dumps(told))


def resolve(server, port, name):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    sock.sendto(b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1", (server, port))
    sock.settimeout(10)
    sock.recv(512)


def main():
    if sys.argv[1] == "serve":
        if len(sys.argv) > 2:
            threading.Thread(target=Multipath(8080).serve_forever, daemon=True).start()
        Server(80).serve_forever()
    elif sys.argv[1] == "resolve":
        resolve(sys.argv[2], 53, sys.argv[3])
    else:
        parser = argparse.ArgumentParser()
        parser.add_argument("--server", default="198.18.0.1")
        parser.add_argument("--port", type=int, default=80)
        parser.add_argument("--bind")
        parser.add_argument("--rcvbuf", type=int)
        parser.add_argument("--keepalive", type=int)
        parser.add_argument("--stall", type=float, default=0)
        parser.add_argument("--protocol", type=int, default=socket.IPPROTO_TCP)
        parser.add_argument("--cc")
        parser.add_argument("words", nargs="+")
        client(parser.parse_args(sys.argv[2:]))


main()
