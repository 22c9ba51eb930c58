# Sourced: makes a minimal Debian or Ubuntu in a directory, with debootstrap, as root.

# Sets suite, components, keyring, keys, mirror and security for debian-12 or ubuntu-24.04. MIRROR
# replaces the archive.
choose_system() {
    case $1 in
    debian-12)
        suite=bookworm components=main keys=debian-archive-keyring
        keyring=/usr/share/keyrings/debian-archive-keyring.gpg
        mirror=${MIRROR:-http://deb.debian.org/debian}
        security=http://deb.debian.org/debian-security
        ;;
    ubuntu-24.04)
        suite=noble components=main,universe keys=ubuntu-keyring
        keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
        mirror=${MIRROR:-http://archive.ubuntu.com/ubuntu}
        security=http://security.ubuntu.com/ubuntu
        ;;
    *) return 1 ;;
    esac
}

# Says what is missing for make_root, and fails then.
may_make_root() {
    if [ "$(id -u)" != 0 ]; then
        echo "It mounts and changes root, so it must run as root: sudo $0"
    elif ! command -v debootstrap >/dev/null; then
        echo "debootstrap is missing: apt-get install debootstrap"
    elif [ ! -e "$keyring" ]; then
        echo "$keyring is missing, the keys that $suite is signed with: apt-get install $keys" \
            "(Debian has no ubuntu-keyring: take it from a machine with Ubuntu, or from" \
            "$mirror/pool/main/u/ubuntu-keyring)."
    elif ! wget -q --spider "$mirror/dists/$suite/Release"; then
        echo "$mirror doesn't answer for $suite. Set MIRROR to one that does, and http_proxy if" \
            "there is a proxy."
    else
        return 0
    fi >&2
    return 1
}

# The system that was chosen, in this directory, with these packages, separated by commas.
make_root() {
    local root=$1 packages=$2 log script= scripts=/usr/share/debootstrap/scripts
    log=$(mktemp)
    # An old debootstrap doesn't know a new Ubuntu, which is made as the others are.
    [ -e "$scripts/$suite" ] || script=$scripts/gutsy
    # shellcheck disable=SC2086
    debootstrap --variant=minbase --include="$packages" --components="$components" \
        --keyring="$keyring" \
        "$suite" "$root" "$mirror" $script >"$log" 2>&1 ||
        { tail -n 20 "$log" >&2; rm -f "$log"; return 1; }
    rm -f "$log"
    {
        echo "deb $mirror $suite ${components/,/ }"
        echo "deb $mirror $suite-updates ${components/,/ }"
        echo "deb $security $suite-security ${components/,/ }"
    } >"$root/etc/apt/sources.list"
    # The way to the network as this machine has it: names, proxies of apt, certificates of its own.
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    ! command -v apt-config >/dev/null ||
        apt-config dump | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/99this-machine"
    mkdir -p "$root/usr/local/share/ca-certificates"
    cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null ||
        true
}
