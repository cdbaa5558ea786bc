#!/bin/sh
# Installs the Debian packages that a purpose needs, those that are missing and no others.
#   tools/system_deps.sh [install|demo|test|image] [--if-root]
# install: Python's venv, where a distribution splits it off. demo: a JRE 17+ too. test, what is meant without a purpose: a JDK 17+, Maven,
# kcat, openssl, a KDC of Kerberos and its headers, PostgreSQL, a C compiler, Python's headers, other Pythons. image: what builds images.
# With --if-root nobody is asked for a password: without root's rights it says what is missing, and what to run.
set -eu

purpose=test
if_root=""
for argument in "$@"; do
    case "$argument" in
    --if-root) if_root=yes ;;
    install | demo | test | image) purpose=$argument ;;
    *) echo "no such purpose: $argument" >&2 && exit 2 ;;
    esac
done

wanted=""
# "17" of `openjdk version "17.0.15"` and of `javac 17.0.15`; 0 where there is no such command or no such line
major() {
    version=$("$1" -version 2>&1 | sed -n -e 's/.*version "\([0-9]*\).*/\1/p' -e 's/^javac \([0-9]*\).*/\1/p' | head -n 1)
    echo "${version:-0}"
}
if [ "$purpose" = test ]; then
    if [ "$(major java)" -lt 17 ] || [ "$(major javac)" -lt 17 ]; then wanted="$wanted openjdk-17-jdk-headless"; fi
    command -v mvn >/dev/null 2>&1 || wanted="$wanted maven"
    command -v kcat >/dev/null 2>&1 || wanted="$wanted kcat"
    command -v openssl >/dev/null 2>&1 || wanted="$wanted openssl"
    # Debian keeps a server's programs off the path
    command -v krb5kdc >/dev/null 2>&1 || [ -x /usr/sbin/krb5kdc ] || wanted="$wanted krb5-kdc"
    command -v kadmin.local >/dev/null 2>&1 || [ -x /usr/sbin/kadmin.local ] || wanted="$wanted krb5-admin-server"
    command -v kinit >/dev/null 2>&1 || wanted="$wanted krb5-user"
    command -v krb5-config >/dev/null 2>&1 || wanted="$wanted libkrb5-dev"
    set -- /usr/lib/postgresql/*/bin/initdb
    command -v initdb >/dev/null 2>&1 || [ -x "$1" ] || wanted="$wanted postgresql"
    command -v cc >/dev/null 2>&1 || wanted="$wanted gcc libc6-dev"
    # Pythons to try the wheel on: those that this distribution has, and the machine lacks
    for version in 3.11 3.12 3.13 3.14; do
        set -- "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python
        command -v "python$version" >/dev/null 2>&1 || [ -x "$1" ] || ! apt-cache show "python$version" >/dev/null 2>&1 ||
            wanted="$wanted python$version-venv"
    done
    python3 -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null ||
        wanted="$wanted python3-dev"
elif [ "$purpose" = demo ]; then
    [ "$(major java)" -ge 17 ] || wanted="$wanted openjdk-17-jre-headless"
elif [ "$purpose" = image ]; then
    command -v buildah >/dev/null 2>&1 || wanted="$wanted buildah"
    command -v debootstrap >/dev/null 2>&1 || wanted="$wanted debootstrap"
fi
python3 -c 'import ensurepip' >/dev/null 2>&1 || wanted="$wanted python3-venv"

[ -n "$wanted" ] || exit 0
if [ -n "$if_root" ] && { [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; }; then
    echo "missing of the system's packages:$wanted" >&2
    if command -v apt-get >/dev/null 2>&1; then
        echo "run this first: sudo tools/system_deps.sh $purpose" >&2
    fi
    [ "$purpose" != install ] || exit 1
    echo "what needs them is skipped, or says so" >&2
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install these by hand (no apt-get here):$wanted" >&2
    exit 1
fi
as_root=""
[ "$(id -u)" -eq 0 ] || as_root="sudo"
echo "installing:$wanted"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
if ! { $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends $wanted >/dev/null; }; then
    echo "these could not be installed:$wanted" >&2
    [ -n "$if_root" ] && [ "$purpose" != install ] || exit 1
    echo "what needs them is skipped, or says so" >&2
fi
