#!/bin/sh
# Packages as users meet them: installed into a system of their own, used there, and removed without a trace.
#
# usage: tests/packages.sh [DIR]      (where the systems are kept, default ~/.cache/sptrace-packages; made once, 250 MB each)
#
# Given: the right of root, debootstrap, an archive of Debian ($MIRROR, or the one that this machine's apt uses), and what
# packaging/build needs. Builds the packages, twice (once if $ONCE is set), and then: the .deb in Debian 12 and 13 with
# nothing but the base system (the README's first example, a manual page, completion of a word in bash, removal), the static
# program in a root that has busybox and no C library, and in guests with Linux 6.1 and 5.10 (tests/vm/run), the tarballs'
# checksums, the .rpm by rpm --test, the PKGBUILD by makepkg, which builds it, and the crates that are meant to be published
# by cargo's dry run. What needs lintian, rpm, makepkg (with fakeroot and bsdtar) or qemu is left out, and named, where these
# are not installed. Gives a line for each thing, then `N passed, N failed`; status 1 if one failed. Not a step of .ci/run,
# for the archive and the room. Knows nothing of how sptrace works.
set -eu
cd "$(dirname "$0")/.."
kept=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/sptrace-packages}
work=$(mktemp -d /var/tmp/sptrace-packages-XXXXXX)
mounts=
# shellcheck disable=SC2086 # a list
cleanup() { for m in $mounts; do umount -l "$m" 2> /dev/null || :; done; rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 1' INT TERM
fail() { echo "packages: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "needs root, for chroot"
command -v debootstrap > /dev/null || fail "debootstrap is not installed (apt-get install debootstrap)"
archive() {
    cat /etc/apt/sources.list.d/*.sources 2> /dev/null | sed -n 's/^URIs: *\([^ ]*\/debian\/*\)\( .*\)\{0,1\}$/\1/p'
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2> /dev/null | sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\/debian\/*\) .*/\2/p'
}
mirror=${MIRROR:-$(archive | head -n 1)}
[ -n "$mirror" ] || fail "apt's configuration names no archive of Debian: set MIRROR to one"
passed=0 failed=0
# check WHAT COMMAND...: a line
check() {
    what=$1; shift
    if "$@" > "$work/said" 2>&1; then passed=$((passed + 1)); echo "ok   $what"
    else failed=$((failed + 1)); echo "FAIL $what"; tail -n 8 "$work/said"; fi
}
# files ROOT: all of it but what the kernel shows
files() { (cd "$1" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./tmp -o -path ./var/cache -o -path ./var/log -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./root \) -prune -o -print | sort); }

packaging/build deb rpm tarball static > "$work/names"
mkdir "$work/first"
xargs -I{} cp {} "$work/first" < "$work/names"
if [ -z "${ONCE:-}" ]; then
    rm -rf target/packaging-dynamic target/packaging-static
    packaging/build deb rpm tarball static > /dev/null
    while read -r name; do check "built again to the byte: $(basename "$name")" cmp "$name" "$work/first/$(basename "$name")"; done < "$work/names"
fi
check 'the crates that are meant to be published build by themselves' cargo publish --workspace --dry-run --quiet --locked
deb=$(grep '\.deb$' "$work/names")
(cd target/packages && check 'checksums of the tarballs' sha256sum --check --quiet ./*.sha256)
# has TOOL: true if it is installed; what it would judge is left out else, and said.
has() { command -v "$1" > /dev/null || { echo "skip what needs $1"; return 1; }; }
! has lintian || check 'lintian' lintian --fail-on error "$deb"
# The newest version of the C library that a symbol is asked of.
newest() { objdump -T "$1" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1; }
check 'glibc 2.35 is enough' sh -c '[ "$(printf "2.35\n%s\n" "$1" | sort -V | tail -n 1)" = 2.35 ]' sh "$(newest target/packages/stage-dynamic/sptrace)"
if has rpm; then
    rpm=$(grep '\.rpm$' "$work/names")
    mkdir "$work/rpm"
    check 'rpm --test' rpm --dbpath "$work/rpm" --nodeps --test -i "$rpm"
    check 'the .rpm has the program, a manual page and completions' sh -c 'rpm --dbpath "$1" -qlp "$2" > "$1/list" && for file in /usr/bin/sptrace man1/sptrace-run.1 bash-completion/completions/sptrace; do grep -q "$file" "$1/list" || exit 1; done' sh "$work/rpm" "$rpm"
fi
if has makepkg && has fakeroot && has bsdtar; then
    # makepkg does not work as root: in a user namespace of its own it is somebody else who may do the same. There is no
    # pacman on Debian, nor is it needed to build.
    packaging/build arch > /dev/null
    mkdir "$work/arch"
    cp target/packages/PKGBUILD target/packages/sptrace-*[0-9].tar.gz "$work/arch"
    as_user() { (cd "$work/arch" && unshare -U --map-user=1000 --map-group=1000 env -u CARGO_TARGET_DIR PACMAN=true PKGEXT=.pkg.tar "$@"); }
    check 'makepkg' as_user makepkg --nodeps --noconfirm
    check 'the package of makepkg has the program, a manual page and completions' sh -c 'for file in usr/bin/sptrace usr/share/man/man1/sptrace-run.1 usr/share/bash-completion/completions/sptrace; do tar -tf "$1"/sptrace-*.pkg.tar | grep -q "^$file" || exit 1; done' sh "$work/arch"
fi

for suite in bookworm trixie; do
    base=$kept/$suite root=$work/$suite
    if [ ! -e "$base.made" ]; then
        echo "making $base"
        rm -rf "$base"; mkdir -p "$base"
        debootstrap --variant=minbase --include=man-db,bash-completion,sqlite3 "$suite" "$base" "$mirror" > "$base.log" 2>&1 || fail "debootstrap $suite: $(tail -n 1 "$base.log")"
        touch "$base.made"
    fi
    cp -a "$base" "$root"
    # Debian's small systems leave manual pages out of packages, if they are told so.
    rm -f "$root/etc/dpkg/dpkg.cfg.d/docker"
    mount -t proc proc "$root/proc"; mounts="$mounts $root/proc"
    mount --rbind /dev "$root/dev"; mounts="$mounts $root/dev"
    inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TERM=dumb "$@"; }
    files "$root" > "$work/before"
    cp "$deb" "$root/tmp/sptrace.deb"
    check "$suite: dpkg --install" inside dpkg --install /tmp/sptrace.deb
    check "$suite: the first example" inside sh -c 'cd /tmp && [ "$(sptrace run -q -- sqlite3 :memory: "select 6*7")" = 42 ] && sptrace report functions | grep -q sqlite3 && sptrace report tree | grep -q "main() {"'
    check "$suite: man sptrace-run" inside sh -c 'man sptrace-run | grep -q "sptrace run"'
    check "$suite: sptrace --version" inside sh -c 'sptrace --version | grep -q commit'
    check "$suite: man sptrace-trace" inside sh -c 'man 5 sptrace-trace | grep -q csv'
    check "$suite: man sptrace-limits" inside sh -c 'man 7 sptrace-limits | grep -q "not"'
    check "$suite: doctor" inside sptrace doctor
    # shellcheck disable=SC2016 # the other shell's
    check "$suite: sptrace rep<TAB>" inside bash -c '. /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/sptrace; COMP_WORDS=(sptrace rep) COMP_CWORD=1 COMP_TYPE=9; _clap_complete_sptrace sptrace rep sptrace; [ "${COMPREPLY[*]}" = report ]'
    check "$suite: removal" inside dpkg --purge sptrace
    files "$root" > "$work/after"
    check "$suite: nothing is left behind" diff "$work/before" "$work/after"
done

root=$work/small
mkdir -p "$root/bin" "$root/proc" "$root/tmp" "$root/dev"
busybox=$(command -v busybox) || fail "busybox is not installed (apt-get install busybox-static)"
cp "$busybox" "$root/bin/busybox"
for applet in sh ls grep; do ln -s busybox "$root/bin/$applet"; done
tar -C "$root/tmp" -xzf target/packages/sptrace-*-linux-static.tar.gz
cp "$root"/tmp/sptrace-*/sptrace "$root/bin"
mount -t proc proc "$root/proc"; mounts="$mounts $root/proc"
mount --rbind /dev "$root/dev"; mounts="$mounts $root/dev"
check 'static: a root without a C library' chroot "$root" /bin/sh -c 'cd /tmp && /bin/sptrace run -q -- /bin/ls / > seen && grep -q bin seen && /bin/sptrace report | grep -q "^events"'
# In guests: the kernel of this Debian, and the oldest one that Debian still has.
cat > "$work/guest.sh" <<'END'
cd /tmp
[ "$(sptrace run -q -- /sqlite3 :memory: 'select 6*7')" = 42 ] && sptrace report functions --limit 3 | grep -q sqlite3 || exit 1
sptrace run -q --syscalls-only -- /sqlite3 :memory: 'select 6*7' && sptrace report lines | grep -q '^write(1, "42' || exit 2
busybox sh -c 'while :; do i=1; done' & program=$!
sleep 1
sptrace attach -q -p $program --for 300ms && sptrace report | grep -q '^events' && kill $program || exit 3
END
old=$kept/bullseye
if has qemu-system-x86_64; then
    mkdir -p "$old/lists/partial" "$old/cache/archives/partial"
    for part in 'debian bullseye' 'debian-security bullseye-security'; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror%/debian*}/${part%% *} ${part#* } main"
    done > "$old/sources.list"
    printf 'Dir::Etc::sourcelist "%s";\nDir::Etc::sourceparts "/dev/null";\nDir::State::lists "%s";\nDir::Cache "%s";\nAPT::Sandbox::User "root";\n' "$old/sources.list" "$old/lists" "$old/cache" > "$old/apt.conf"
    guest() { tests/vm/run --time 240 --file "$root/bin/sptrace:/bin/sptrace" --file "$(command -v sqlite3):/sqlite3" "$1" "$work/guest.sh" "$work/guest-$1"; }
    old_guest() { APT_CONFIG=$old/apt.conf apt-get -qq update && APT_CONFIG=$old/apt.conf guest 5.10; }
    check 'static: a guest with Linux 6.1' guest 6.1
    check 'static: a guest with Linux 5.10' old_guest
fi
check 'static: linked with nothing' sh -c '! ldd "$1" 2> /dev/null | grep -q "=>"' sh "$root/bin/sptrace"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
