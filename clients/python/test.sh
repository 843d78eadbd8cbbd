#!/usr/bin/env bash
# Checks, tests and builds the client, then tries the package in an empty project.
#
#   clients/python/test.sh                    everything
#   clients/python/test.sh <part>
#       install            only installs the tools of requirements-dev.txt
#       offline            all that needs no running service
#       live               reads from the service at BELLBIRD_TEST_URL with the key
#                          BELLBIRD_TEST_KEY; also changes rows at the simulated Fiskil and Akahu behind it, if
#                          BELLBIRD_TEST_CONTROL and BELLBIRD_TEST_AKAHU_CONTROL are their URLs; and calls the
#                          operator's API at BELLBIRD_TEST_ADMIN_URL with BELLBIRD_TEST_OPERATOR_KEY, if they are set
#       package <folder>   only builds the package, into this folder
#
# PYTHON names another Python than python3. All outputs are in target/clients/python.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
place="$(cd ../.. && pwd)/target/clients/python"
bin="$place/venv/bin"
export PYTHONPYCACHEPREFIX="$place/pycache"
folder="$(mktemp -d)"
trap 'rm -rf -- "$folder"' EXIT

say() { printf 'clients/python: %s\n' "$*"; }

# quiet <program...>: shows the output only of a failure.
quiet() {
    "$@" >"$folder/log" 2>&1 || {
        cat "$folder/log" >&2
        say "failed: $*" >&2
        exit 1
    }
}

download="$(cd ../.. && pwd)/scripts/download"

# The pip of the lock file serves the empty project too.
pip() { "$bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

install() {
    if "$bin/python" --version >/dev/null 2>&1 && cmp --silent requirements-dev.txt "$place/installed"; then return; fi
    quiet "${PYTHON:-python3}" -m venv --clear "$place/venv"
    quiet "$download" "$bin/python" -m pip --disable-pip-version-check --quiet install --require-hashes \
        --requirement requirements-dev.txt
    cp requirements-dev.txt "$place/installed"
}

# value <key>: of pyproject.toml.
value() { sed -n "s/^$1 = \"\(.*\)\"$/\1/p" pyproject.toml; }

# package <folder>: the wheel and the source distribution. At PyPI, the README's links lead to the repository.
package() {
    local source="$folder/source" place left
    place="$(value Repository)/blob/v$(value version)"
    mkdir "$source"
    cp -r .gitignore LICENSE README.md pyproject.toml src examples "$source"
    sed --in-place --regexp-extended "s#\]\(\.\./\.\./#]($place/#g; s#\]\(\.\./#]($place/clients/#g
        s#\]\((src|examples)/#]($place/clients/python/\1/#g" "$source/README.md"
    left="$(grep --only-matching ']([^)]*)' "$source/README.md" | grep --invert-match '](https://' || true)"
    if [[ -n "$left" ]]; then
        say "links of the README that lead nowhere at PyPI: $left" >&2
        exit 1
    fi
    quiet "$bin/python" -m build --no-isolation --outdir "$1" "$source"
}

# In an empty project, with only the built package and what it needs.
try_package() {
    local python="$folder/venv/bin/python"
    quiet "$bin/python" -m venv --without-pip "$folder/venv"
    pip freeze >"$folder/constraints.txt"
    quiet "$download" "$bin/python" -m pip --disable-pip-version-check --quiet --python "$python" install --no-compile \
        --constraint "$folder/constraints.txt" "$1[webhooks]"
    cat >"$folder/project.py" <<'PYTHON'
from collections.abc import Iterator

from bellbird_client import AsyncClient, BellbirdError, Client
from bellbird_client.types import Transaction
from bellbird_client.webhooks import verify_webhook

rows: Iterator[Transaction] = Client("http://127.0.0.1:8080", "bb_key").transactions("id")
print(AsyncClient, BellbirdError, verify_webhook)
PYTHON
    quiet "$python" "$folder/project.py"
    quiet "$bin/mypy" --config-file "" --cache-dir "$place/mypy" --strict --python-executable "$python" \
        "$folder/project.py"
}

offline() {
    local tests cases
    quiet "$bin/mypy"
    quiet "$bin/pytest" --quiet --ignore test/test_live.py --ignore test/test_operator.py
    tests="$(tail -n 1 "$folder/log")"
    package "$folder/dist"
    try_package "$(echo "$folder"/dist/*.whl)"
    cases="$("$bin/python" -c 'import json; print(len(json.load(open("../conformance.json"))["cases"]))')"
    say "$cases conformance cases, each with Client and AsyncClient; all tests: $tests"
}

live() {
    if [[ -z "${BELLBIRD_TEST_URL:-}" || -z "${BELLBIRD_TEST_KEY:-}" ]]; then
        say "the live cases are skipped: BELLBIRD_TEST_URL and BELLBIRD_TEST_KEY are not set"
        return
    fi
    quiet "$bin/pytest" --quiet test/test_live.py test/test_operator.py
    say "live cases: $(tail -n 1 "$folder/log")"
}

mkdir -p "$place"
install
case "${1:-}" in
    "")
        offline
        live
        ;;
    install) ;;
    offline | live) "$1" ;;
    package) package "$2" ;;
    *)
        say "unknown part $1: see the first lines of clients/python/test.sh" >&2
        exit 2
        ;;
esac
