#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains on ranks in different network namespaces, whose packets are late and sometimes lost.

    mpi_hosts_test.py PROGRAM

Each namespace is a host with its own address. A relay passes packets between them after a delay and
drops some. Open MPI and MPICH must reach the bits of the simulation in one process. Needs root
rights, iproute2 and /dev/net/tun; otherwise exits with 77, which ctest counts as skipped.
"""
import fcntl
import heapq
import os
import pathlib
import random
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

DELAY_SECONDS, LOSS = 0.002, 0.02
HOSTS = 3  # the first one only starts the others
TRAINING = ["train", "--model", "mlp:784-16-10", "--batch", "24", "--steps", "30", "--quiet",
            "--plan", "mixed_float16", "--reduce", "ring:format=bf16"]


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def namespace(host):
    return f"halfscope{host}"


def address(host):
    return f"10.77.0.{host + 1}"


class Network:
    """Namespaces with a TUN device each, and the relay between them."""

    def __init__(self):
        self.tuns, self.passed, self.dropped, self.ends = [], 0, 0, False
        self.remove()
        for host in range(HOSTS):
            run("ip", "netns", "add", namespace(host))
            tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            tun_without_header = 0x1001  # IFF_TUN | IFF_NO_PI
            fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH", f"hst{host}".encode(), tun_without_header))
            self.tuns.append(tun)
            run("ip", "link", "set", f"hst{host}", "netns", namespace(host))
            inside = ["ip", "-n", namespace(host)]
            run(*inside, "addr", "add", f"{address(host)}/24", "dev", f"hst{host}")
            run(*inside, "link", "set", f"hst{host}", "up")
            run(*inside, "link", "set", "lo", "up")
        self.thread = threading.Thread(target=self.relay)
        self.thread.start()

    def relay(self):
        chance, waiting, count = random.Random(1), [], 0
        while not self.ends:
            readable, _, _ = select.select(self.tuns, [], [], 0.001)
            now = time.monotonic()
            for tun in readable:
                packet = os.read(tun, 65536)
                host = packet[19] - 1  # the last byte of the IPv4 destination
                if packet[0] >> 4 != 4 or not 0 <= host < HOSTS:
                    continue
                if chance.random() < LOSS:
                    self.dropped += 1
                    continue
                count += 1
                heapq.heappush(waiting, (now + DELAY_SECONDS, count, host, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, host, packet = heapq.heappop(waiting)
                self.passed += 1
                os.write(self.tuns[host], packet)

    @staticmethod
    def remove():
        for host in range(HOSTS):
            subprocess.run(["ip", "netns", "del", namespace(host)], stderr=subprocess.DEVNULL)

    def close(self):
        self.ends = True
        self.thread.join()
        for tun in self.tuns:
            os.close(tun)
        self.remove()


def launchers(agent):
    """Commands that start one rank on each host, by the name of the implementation."""
    hosts = ",".join(address(host) for host in range(1, HOSTS))
    open_mpi = ["mpirun.openmpi", "--host", hosts, "-n", str(HOSTS - 1), "--mca", "plm_rsh_agent",
                agent, "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "10.77.0.0/24",
                "--mca", "oob_tcp_if_include", "10.77.0.0/24", "--mca", "pml", "ob1"]
    mpich = ["mpirun.mpich", "-launcher", "ssh", "-launcher-exec", agent, "-hosts", hosts, "-n",
             str(HOSTS - 1), "-iface", "hst0", "-genv", "MPIR_CVAR_NOLOCAL", "1"]
    return {"openmpi": open_mpi, "mpich": mpich}


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun") or not shutil.which("ip"):
        skip("needs root rights, iproute2 and /dev/net/tun")
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       HALFSCOPE_CACHE="")
    tested = 0
    with tempfile.TemporaryDirectory() as folder:
        agent = pathlib.Path(folder) / "agent"
        # In place of ssh: the last byte of the address is the number of the namespace.
        agent.write_text("#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1\nshift\n"
                         "number=$((${host##*.} - 1))\n"
                         f"mkdir -p {folder}/tmp$number\n"
                         "exec ip netns exec halfscope$number unshare --uts sh -c \"\n"
                         "echo host$number > /proc/sys/kernel/hostname\n"
                         f"export TMPDIR={folder}/tmp$number\n$*\"\n")
        agent.chmod(0o755)
        simulated = [program, *TRAINING, "--ranks", str(HOSTS - 1), "--out", "alone.hscope",
                     "--save-weights", "alone.npz"]
        subprocess.run(simulated, cwd=folder, check=True, env=environment)
        expected = (pathlib.Path(folder) / "alone.npz").read_bytes()
        try:
            network = Network()
        except (OSError, subprocess.CalledProcessError) as error:
            skip(f"namespaces cannot be made here: {error}")
        try:
            for name, words in launchers(str(agent)).items():
                if not shutil.which(words[0]) or not (program.parent / f"halfscope_{name}.so").exists():
                    print(f"{name}: not installed, not tested")
                    continue
                before = network.passed, network.dropped
                subprocess.run(["ip", "netns", "exec", namespace(0), *words, program, *TRAINING, "--out",
                                f"{name}.hscope", "--save-weights", f"{name}.npz"],
                               cwd=folder, check=True, env=environment, timeout=300)
                if (pathlib.Path(folder) / f"{name}.npz").read_bytes() != expected:
                    sys.exit(f"{name}: other weights than in one process")
                passed, dropped = network.passed - before[0], network.dropped - before[1]
                print(f"{name}: the same bits; {passed} packets passed, {dropped} lost")
                if dropped == 0:
                    sys.exit(f"{name}: no packet was lost, so nothing was tested")
                tested += 1
        finally:
            network.close()
    if tested == 0:
        skip("neither Open MPI nor MPICH is installed")


if __name__ == "__main__":
    main()
