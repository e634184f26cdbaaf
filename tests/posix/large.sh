#!/usr/bin/env bash
# large.sh ENTRIES: the topic `listing` of tests/posix with that many entries, committed and folded before.
set -euo pipefail
posix="/usr/bin/python3 $(cd "$(dirname "$0")" && pwd)/posix.py"
export POSIX_ENTRIES=$1
trap 'ntr daemon stop >/dev/null' EXIT
ntr run -c "$posix make listing"
ntr stop
ntr run -c "time $posix act listing" >listing.log
cat listing.log
[ "$(wc -l <listing.log)" -eq 6 ]
! grep -q False listing.log
grep -q 'seekdir: 0 True True' listing.log
