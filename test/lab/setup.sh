#!/bin/bash
# Sets up the RDMA lab: a small virtual machine with the two software RDMA devices of
# Linux, siw (iWARP) and rxe (RoCE), and the programs of rdma-core and perftest. run.sh
# boots it. It needs no hardware and no KVM.
#
#   setup.sh        prints the lab's directory
#
# The lab is kept in $GOSDP_LAB, by default ~/.cache/gosdp-lab. Set-up takes about two
# minutes on a bare Debian 12, where it installs packages. It is repeated only if this file
# has changed.
#
# Debian's kernel image lacks siw. This script compiles it from Debian's linux-source
# package against the headers of the same kernel. siw's settings are constants in its
# source, so each combination is a module of its own; see variants below.
set -euo pipefail
self=$(realpath "$0")
lab=${GOSDP_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/gosdp-lab}
key=$(sha256sum <"$self" | cut -d' ' -f1)

mkdir -p "$lab"
exec 9>"$lab/lock"
flock 9
if [[ $(cat "$lab/key" 2>/dev/null) == "$key" ]] && command -v qemu-system-x86_64 >/dev/null; then
	echo "$lab"
	exit
fi
rm -f "$lab/key"

# The name of each module, and the change to the source for it.
variants=(
	"siw"             # unchanged: MPA revision 2, CRC if the peer requests it
	"siw-strict       s/^const bool (mpa_crc_required|peer_to_peer);/const bool \1 = true;/"
	"siw-read-rtr     s/^const bool peer_to_peer;/const bool peer_to_peer = true;/; s/MPA_V2_RDMA_READ_RTR \| MPA_V2_RDMA_WRITE_RTR;/MPA_V2_RDMA_READ_RTR;/"
	"siw-by-reference s/tcp_sendmsg_locked\(sk, &msg, bytes\)/do_tcp_sendpages(sk, page[i], offset, bytes, MSG_DONTWAIT)/; s/^(\t+)bytes -= rv;/\1offset += rv; bytes -= rv;/"
	"siw-revision1    s/^u_char mpa_version = .*/u_char mpa_version = MPA_REVISION_1;/"
)
# The modules that init loads, and those that a script may load with modprobe.
loaded="crc32c_generic crc32c_intel libcrc32c crc32_generic crc32_pclmul virtio_pci virtio_net 9pnet_virtio 9p inet_diag tcp_diag rdma_rxe rdma_ucm ib_uverbs"
loadable="sch_netem sch_prio cls_u32 smc smc_diag"

# The programs. Every library that they link is copied too.
programs="bash ip tc rdma ibv_devices ibv_devinfo
	rping ucmatose rdma_client rdma_server rstream rcopy riostream
	ib_send_lat ib_send_bw ib_read_lat ib_read_bw ib_write_lat ib_write_bw"
# Libraries that programs open by name at run time.
libraries="libibverbs.so.1 librdmacm.so.1 libnl-3.so.200 libnl-route-3.so.200 libgcc_s.so.1 libdl.so.2 libpthread.so.0"

step() { echo "== lab: $* (${SECONDS} s)" >&2; }

packages="qemu-system-x86 busybox-static cpio kmod xz-utils make gcc libc6-dev iproute2
	linux-headers-amd64 linux-source-6.1
	rdma-core ibverbs-utils rdmacm-utils perftest libibverbs-dev librdmacm-dev"
missing=()
for package in $packages; do
	[[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == "install ok installed" ]] || missing+=("$package")
done
if ((${#missing[@]})); then
	as_root=()
	if (($(id -u))); then
		command -v sudo >/dev/null || { echo "lab: neither root nor sudo, and not installed: ${missing[*]}" >&2; exit 1; }
		as_root=(sudo)
	fi
	command -v apt-get >/dev/null || { echo "lab: not a Debian system, and not installed: ${missing[*]}" >&2; exit 1; }
	step "install ${missing[*]}"
	"${as_root[@]}" apt-get update -qq >&2
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
		install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

headers=$(printf '%s\n' /usr/src/linux-headers-6.1.*-amd64 | grep -vE 'cloud|rt' | sort -V | tail -1)
version=${headers#/usr/src/linux-headers-}
build=$lab/build
rm -rf "$build"
mkdir -p "$build"
trap 'rm -rf "$build"' EXIT

step "kernel $version"
(cd "$build" && apt-get -o APT::Sandbox::User=root download -qq "linux-image-$version" >&2 && dpkg -x linux-image-*.deb kernel)
kernel=$build/kernel
depmod -b "$kernel" "$version"

step "siw"
tar -C "$build" -xf /usr/src/linux-source-6.1.tar.xz linux-source-6.1/drivers/infiniband/sw/siw
original=$build/linux-source-6.1/drivers/infiniband/sw/siw
cp -r "$original" "$build/source"
for variant in "${variants[@]}"; do
	read -r name change <<<"$variant"
	same=1
	for file in siw_main.c siw_cm.c siw_qp_tx.c; do
		sed -E "$change" "$original/$file" >"$build/source/$file"
		cmp -s "$original/$file" "$build/source/$file" || same=
	done
	if [[ -n $change && -n $same ]]; then
		echo "lab: siw has nothing to change for $name" >&2
		exit 1
	fi
	make -j"$(nproc)" -C "$headers" M="$build/source" CONFIG_RDMA_SIW=m modules >"$build/log" 2>&1 || { cat "$build/log" >&2; exit 1; }
	strip --strip-debug "$build/source/siw.ko" -o "$build/$name"
done

step "image"
root=$build/root
modules=lib/modules/$version
mkdir -p "$root"/{bin,proc,sys,dev,tmp,etc/libibverbs.d,lib64,mnt/host,root,run,usr/lib/x86_64-linux-gnu,$modules/siw}
ln -s bin "$root/sbin"
cp /bin/busybox "$root/bin/"
cp "$kernel/$modules"/modules.{builtin*,order} "$root/$modules/"
for module in $loaded $loadable; do
	for file in $(modprobe -d "$kernel" -S "$version" --show-depends "$module" 2>/dev/null | awk '/^insmod/{print $2}'); do
		mkdir -p "$(dirname "$root/${file#"$kernel"/}")"
		cp "$file" "$root/${file#"$kernel"/}"
	done
done
depmod -b "$root" "$version"
for variant in "${variants[@]}"; do # all have the same module name, so depmod must not see them
	read -r name _ <<<"$variant"
	cp "$build/$name" "$root/$modules/siw/$name"
done

library() { mkdir -p "$root$(dirname "$1")" && cp -Lu "$1" "$root$1"; }
for program in $programs; do
	path=$(command -v "$program" || command -v "/sbin/$program" || command -v "/usr/sbin/$program")
	cp -L "$path" "$root/bin/"
	for file in $(ldd "$path" | grep -o '/[^ ]*'); do library "$file"; done
done
for name in $libraries; do
	library "$(ldconfig -p | awk -v l="$name" '$1 == l && /x86-64/ {print $NF; exit}')"
done
cp -rL /usr/lib/x86_64-linux-gnu/libibverbs /usr/lib/x86_64-linux-gnu/rsocket "$root/usr/lib/x86_64-linux-gnu/"
cp /etc/libibverbs.d/{rxe,siw}.driver "$root/etc/libibverbs.d/"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo '127.0.0.1 localhost' >"$root/etc/hosts"

cat >"$root/bin/siw" <<'SIW'
#!/bin/bash
# siw [VARIANT]: replaces the loaded module of siw by the given one, by default siw, and
# makes the device siw0 on eth0.
set -e
rdma link delete siw0 2>/dev/null || true
if [[ -e /sys/module/siw ]]; then rmmod siw; fi
insmod "/lib/modules/$(uname -r)/siw/${1:-siw}"
rdma link add siw0 type siw netdev eth0

# As a responder, siw watches its socket only after it has sent the MPA Reply. It does not
# notice data that arrived before: if the peer answers at once and then waits, siw never
# receives it. A real network is slow enough. Here the Reply, which begins with "MPA ID R",
# is delayed by 100 ms. The filters match it after an IP header without options and a TCP
# header with or without time stamps.
if ! tc qdisc show dev eth0 | grep -q prio; then
	tc qdisc add dev eth0 root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
	tc qdisc add dev eth0 parent 1:2 netem delay 100ms
	for at in 40 52; do
		tc filter add dev eth0 parent 1: protocol ip u32 \
			match u32 0x4d504120 0xffffffff at $at match u32 0x49442052 0xffffffff at $((at + 4)) flowid 1:2
	done
fi
SIW

cat >"$root/init" <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm; mount -t devpts devpts /dev/pts; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /tmp
for m in $loaded; do modprobe \$m 2>/dev/null; done
ulimit -l unlimited
ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 host /mnt/host
cd /mnt/host; ./run; echo \$? >/mnt/host/.status; sync
poweroff -f
INIT
chmod +x "$root/init" "$root/bin/siw"
(cd "$root" && find . | LC_ALL=C sort | cpio -o -H newc --quiet -R 0:0 >"$lab/initrd")
# An emulated processor takes longer to unpack a kernel than to boot it, so kernel and
# initrd are stored unpacked. xz stops at the end of the kernel and ignores what follows.
packed=$kernel/boot/vmlinuz-$version
offset=$(LC_ALL=C grep -abo -m1 $'\xfd7zXZ' "$packed" | head -1 | cut -d: -f1)
tail -c "+$((offset + 1))" "$packed" | xz -dc --single-stream >"$lab/vmlinux" 2>/dev/null || true
[[ $(head -c 4 "$lab/vmlinux") == $'\x7fELF' ]] || { echo "lab: no kernel found in $packed" >&2; exit 1; }
echo "$key" >"$lab/key"
step "done"
echo "$lab"
