#!/usr/bin/env python3
"""Prints `update SOURCE timeout 10m` for each IPv4 source with more than LIMIT samples within a second.

usage: detector.py INTERFACE LIMIT | weir ctl table suspects stream
"""
import collections
import socket
import sys
import time

IPV4 = 0x0800
interface, limit = sys.argv[1], int(sys.argv[2])
samples = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(IPV4))
samples.bind((interface, IPV4))
counts, begun = collections.Counter(), time.monotonic()
while True:
    source = socket.inet_ntoa(samples.recv(20)[12:16])
    if time.monotonic() - begun >= 1:
        counts, begun = collections.Counter(), time.monotonic()
    counts[source] += 1
    if counts[source] == limit + 1:
        print(f"update {source} timeout 10m", flush=True)
