#!/usr/bin/env bash
# Checks, tests and builds the client, then tries the package in an empty project.
#
#   clients/typescript/test.sh                    everything
#   clients/typescript/test.sh <part>
#       install            only installs the tools of package-lock.json
#       offline            all that needs no running service
#       live               after offline: reads from the service at BELLBIRD_TEST_URL with the key
#                          BELLBIRD_TEST_KEY; also changes rows at the simulated Fiskil and Akahu behind it, if
#                          BELLBIRD_TEST_CONTROL and BELLBIRD_TEST_AKAHU_CONTROL are their URLs; and calls the
#                          operator's API at BELLBIRD_TEST_ADMIN_URL with BELLBIRD_TEST_OPERATOR_KEY, if they are set
#       package <folder>   only builds the package, into this folder
#
# NODE names another Node.js than node, 20.3 or newer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
here="$PWD"
node="${NODE:-node}"
download="$(cd ../.. && pwd)/scripts/download"
folder="$(mktemp -d)"
trap 'rm -rf -- "$folder"' EXIT
export npm_config_loglevel=error npm_config_fund=false npm_config_audit=false npm_config_update_notifier=false

say() { printf 'clients/typescript: %s\n' "$*"; }

# quiet <program...>: shows the output only of a failure.
quiet() {
    "$@" >"$folder/log" 2>&1 || {
        cat "$folder/log" >&2
        say "failed: $*" >&2
        exit 1
    }
}

install() {
    if cmp --silent package-lock.json node_modules/.installed; then return; fi
    quiet "$download" npm ci --ignore-scripts
    cp package-lock.json node_modules/.installed
}

# package <folder>
package() { quiet npm pack --pack-destination "$1"; }

# In an empty project, with only the built package. The examples and the code of the README compile there.
try_package() {
    local library project="$folder/project"
    library="standardwebhooks@$("$node" -p 'require("./package.json").devDependencies.standardwebhooks')"
    mkdir "$project"
    cp examples/*.ts "$project"
    awk -v folder="$project" '
        /^```ts$/ { file = folder "/readme-" ++count ".ts"; next }
        /^```$/ { file = "" }
        file { print > file }
    ' README.md
    cd "$project"
    echo '{"private":true,"type":"module"}' >package.json
    quiet "$download" npm install "$1"
    quiet "$node" --input-type=module --eval \
        'import { Bellbird } from "bellbird-client"; new Bellbird({ url: "http://[::1]", key: "k" })'
    quiet "$download" npm install "$library"
    quiet "$node" --input-type=module --eval \
        'import { verifyWebhook } from "bellbird-client/webhooks"; verifyWebhook.call'
    quiet "$here/node_modules/.bin/tsc" --noEmit --strict --skipLibCheck --target es2022 --lib es2022 \
        --module nodenext --typeRoots "$here/node_modules/@types" --types node ./*.ts
    cd "$here"
}

# run_tests <file...>: prints how many passed.
run_tests() {
    "$node" --test --test-reporter=tap "$@" >"$folder/tap" || {
        sed -n '/^not ok/,/^  \.\.\.$/p' "$folder/tap" >&2
        exit 1
    }
    awk '/^# pass/ { passed = $3 } /^# skipped/ { print passed " passed, " $3 " skipped" }' "$folder/tap"
}

offline() {
    local tests types
    rm -rf build
    mkdir build
    quiet "$node" generate.mjs build
    for types in {admin-,}schema.ts; do
        cmp "src/$types" "build/$types" || {
            say "src/$types is not that of its document: run npm run generate" >&2
            exit 1
        }
    done
    package "$folder"
    quiet node_modules/.bin/tsc
    tests="$(run_tests build/test/{client,conformance}.test.js)"
    try_package "$(echo "$folder"/*.tgz)"
    say "$("$node" -p 'require("../conformance.json").cases.length') conformance cases; all tests: $tests"
}

live() {
    local tests
    if [[ -z "${BELLBIRD_TEST_URL:-}" || -z "${BELLBIRD_TEST_KEY:-}" ]]; then
        say "the live cases are skipped: BELLBIRD_TEST_URL and BELLBIRD_TEST_KEY are not set"
        return
    fi
    tests="$(run_tests build/test/{live,operator}.test.js)"
    say "live cases: $tests"
}

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
        say "unknown part $1: see the first lines of clients/typescript/test.sh" >&2
        exit 2
        ;;
esac
