#!/usr/bin/env bash
# Pin and hash every requirement anew. Run it to take newer versions; the result is committed.
set -eu
# torch.txt names torch, without hashes: which of its builds fits differs between machines. What it needs is locked here;
# lock where pip finds the build for CPUs, or its CUDA libraries are locked as well.
export CUSTOM_COMPILE_COMMAND=requirements/lock.sh  # what the files say they were made by
cd "$(dirname "$0")"
for name in services dev flower worker; do
    pip-compile --quiet --generate-hashes --strip-extras \
        --unsafe-package torch --no-emit-index-url --no-emit-find-links --no-emit-trusted-host "$@" -o "$name.txt" "$name.in"
done
