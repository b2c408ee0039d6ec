#!/bin/sh
# need.sh cargo python cc: is what the build needs there? Names everything that is not, and how to get it.
# PYTHON names the interpreter to look at (default: python3).
python=${PYTHON:-python3}
missing=0

lacks() { # what is missing, then how to get it
    printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
    missing=1
}

# at_least WANTED FOUND: compares versions such as 1.90 and 1.95.0
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

need_cargo() {
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    how='install Rust with rustup (see rust-lang.org, "Install"); distributions often have an older one'
    if ! command -v cargo >/dev/null 2>&1; then
        lacks "cargo, the build tool of Rust, is not on PATH" "$how"
        return
    fi
    found=$(cargo --version 2>/dev/null | cut -d' ' -f2)
    at_least "$wanted" "${found:-0}" ||
        lacks "cargo $wanted or newer is needed, this one is ${found:-broken}" "rustup update stable, or $how"
}

need_python() {
    if ! command -v "$python" >/dev/null 2>&1; then
        lacks "$python is not on PATH" "apt-get install python3 python3-venv, or PYTHON=/path/to/python3 make ..."
        return
    fi
    found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
    at_least 3.11 "${found:-0}" || {
        lacks "Python 3.11 or newer is needed, $python is ${found:-broken}" "PYTHON=/path/to/newer/python3 make ..."
        return
    }
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        lacks "$python lacks its venv module" "apt-get install python3-venv"
}

need_cc() {
    command -v cc >/dev/null 2>&1 || lacks "cc, a C compiler and linker, is not on PATH" "apt-get install gcc libc6-dev"
}

for what in "$@"; do
    case $what in
    cargo | python | cc) "need_$what" ;;
    *)
        echo "error: need.sh knows nothing of $what" >&2
        exit 2
        ;;
    esac
done
exit $missing
