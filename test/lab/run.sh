#!/bin/bash
# Boots the RDMA lab (see setup.sh), runs one script in it as root, and exits with the
# script's status, or with 125 if the machine stopped before the script had ended.
#
#   run.sh SCRIPT [FILE ...]
#
# SCRIPT and each FILE (or directory) are copied to /mnt/host, which is the script's working
# directory and is shared with this machine. Files that the script leaves in /mnt/host/out
# are copied to $OUT.
#
#   OUT=DIR              the directory for the script's output files
#   SHARE=DIR            share this directory instead of a temporary one
#   FORWARD="HOST:GUEST ..."   forward TCP ports of this machine's 127.0.0.1 to ports of
#                        the lab; in the lab, 10.0.2.2 is this machine's loopback
#   LINK=listen=HOST:PORT, LINK=connect=HOST:PORT   the two ends of a network link between
#                        two machines, interface eth1 in both; start the listener first
#   CAPTURE=FILE         record the packets of the link in a pcap file
#   MEMORY=2G CPUS=2     the size of the machine
#   TIMEOUT=300          seconds after which the machine is killed
#
# In the lab, siw [VARIANT] makes the iWARP device siw0, and rdma link add rxe0 type rxe
# netdev eth0 makes the RoCE device rxe0, each at 10.0.2.15. The processor is emulated and
# slow: compare times only with times of the same machine. In Busybox's sh, ip and tc are
# Busybox's own; in bash they are those of iproute2.
set -euo pipefail
lab=${GOSDP_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/gosdp-lab}
[[ -s $lab/key ]] || { echo "lab: not set up in $lab: run $(dirname "$0")/setup.sh" >&2; exit 125; }
(($#)) || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 125; }

share=${SHARE:-}
if [[ -z $share ]]; then
	share=$(mktemp -d)
	trap 'rm -rf "$share"' EXIT
fi
mkdir -p "$share/out"
rm -f "$share/.status"
cp "$1" "$share/run"
chmod +x "$share/run"
shift
for file in "$@"; do cp -r "$file" "$share/"; done

network=user,id=n0
for ports in ${FORWARD:-}; do
	network+=,hostfwd=tcp:127.0.0.1:${ports%:*}-:${ports#*:}
done
link=()
if [[ -n ${LINK:-} ]]; then
	mac=52:54:00:00:01:01
	[[ $LINK == listen=* ]] || mac=52:54:00:00:01:02
	link=(-netdev "socket,id=n1,$LINK" -device "virtio-net-pci,netdev=n1,romfile=,mac=$mac")
	[[ -z ${CAPTURE:-} ]] || link+=(-object "filter-dump,id=dump,netdev=n1,file=$CAPTURE")
fi
# The clock in the lab is this processor's TSC. On a busy machine, a booting kernel measures
# its frequency wrong by a large factor. So the frequency, in kHz, is passed to the kernel.
# It is measured over 100 ms. At both ends, many pairs of clock readings are made, and the
# two that are closest together are used.
khz=()
if command -v gcc >/dev/null && gcc -O1 -x c -o "$share/tsc" - 2>/dev/null <<'C' && rate=$("$share/tsc"); then
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

static void look(unsigned long long *tsc, double *now)
{
	double least = 1e9;
	for (int i = 0; i < 1000; i++) {
		struct timespec a, b;
		clock_gettime(CLOCK_MONOTONIC, &a);
		unsigned long long t = __rdtsc();
		clock_gettime(CLOCK_MONOTONIC, &b);
		double took = b.tv_sec - a.tv_sec + 1e-9 * (b.tv_nsec - a.tv_nsec);
		if (took < least) {
			least = took;
			*tsc = t;
			*now = a.tv_sec + 1e-9 * a.tv_nsec + took / 2;
		}
	}
}

int main(void)
{
	unsigned long long a, b;
	double from, to;
	look(&a, &from);
	nanosleep(&(struct timespec){0, 100000000}, NULL);
	look(&b, &to);
	return printf("%.0f\n", (b - a) / (to - from) / 1e3) < 0;
}
C
	khz=("tsc_early_khz=$rate")
fi
# sed removes the terminal control sequences of the firmware and the kernel.
timeout --foreground "${TIMEOUT:-300}" qemu-system-x86_64 \
	-machine q35 -accel tcg,thread=multi -cpu max -smp "${CPUS:-2}" -m "${MEMORY:-2G}" \
	-nographic -nodefaults -serial stdio -monitor none -no-reboot \
	-kernel "$lab/vmlinux" -initrd "$lab/initrd" \
	-append "console=ttyS0 quiet loglevel=3 oops=panic panic=1 mitigations=off tsc=reliable ${khz[*]}" \
	-netdev "$network" -device virtio-net-pci,netdev=n0,romfile= "${link[@]}" \
	-virtfs "local,path=$share,mount_tag=host,security_model=none,id=host" </dev/null |
	sed -u 's/\x1b[[?][0-9;?]*[a-zA-Z]//g; s/\x1bc//g; s/\r$//'

[[ -z ${OUT:-} ]] || cp -r "$share/out/." "$OUT/"
[[ -s $share/.status ]] || { echo "lab: the machine stopped before the script had ended" >&2; exit 125; }
exit "$(cat "$share/.status")"
