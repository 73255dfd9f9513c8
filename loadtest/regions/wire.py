#!/usr/bin/env python3
"""A wire between two network namespaces, for kernels without netem: each packet arrives after a delay,
and some are lost.

    wire.py NEAR-NAMESPACE NEAR-ADDRESS FAR-NAMESPACE FAR-ADDRESS DELAY-MS LOSS-PERCENT

Prints "ready" when both ends are up. Ends when its standard input does.
"""
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x0001 | 0x1000
CLONE_NEWNET = 0x40000000
PACKET_BYTES = 65_536
NAME = "wire"

libc = ctypes.CDLL(None, use_errno=True)


def end(namespace, address, peer):
    """Opens one end of the wire in a namespace."""
    with open(f"/run/netns/{namespace}") as net:
        if libc.setns(net.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", NAME.encode(), IFF_TUN_NO_PI))
    for command in (
        f"addr add {address} peer {peer} dev {NAME}",
        f"link set {NAME} mtu 1500 txqueuelen 10000 up",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    return tun


def carry(ends, delay, loss):
    """Moves packets until the standard input ends."""
    others = {ends[0]: ends[1], ends[1]: ends[0]}
    waiting = []
    number = 0
    while True:
        wait = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([*ends, sys.stdin], [], [], wait)
        if sys.stdin in readable:
            return
        now = time.monotonic()
        for tun in readable:
            for _ in range(64):
                try:
                    packet = os.read(tun, PACKET_BYTES)
                except BlockingIOError:
                    break
                if random.random() >= loss:
                    number += 1
                    heapq.heappush(waiting, (now + delay, number, others[tun], packet))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, tun, packet = heapq.heappop(waiting)
            try:
                os.write(tun, packet)
            except OSError:
                pass  # the end is full or down: the packet is lost


near, near_address, far, far_address, delay_ms, loss_percent = sys.argv[1:]
pair = [end(near, near_address, far_address), end(far, far_address, near_address)]
print("ready", flush=True)
carry(pair, float(delay_ms) / 1000, float(loss_percent) / 100)
