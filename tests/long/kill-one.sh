#!/usr/bin/env bash
# kill-one.sh TARGET ROUNDS SEED: tests/crash/kills.py on the store of $NTR_STORE, whose daemon it ends afterwards.
tests=$(cd "$(dirname "$0")/.." && pwd)
status=0
/usr/bin/python3 "$tests/crash/kills.py" --target "$1" --rounds "$2" --seed "$3" || status=$?
ntr daemon stop || status=1
exit $status
