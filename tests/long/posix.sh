# System calls: tests/posix with large directories, and pjdfstest where NTR_PJDFSTEST is a checkout of it
# (https://github.com/pjd/pjdfstest): in a session, and with everything it touches committed and folded before, where what
# docs/posix.md lists fails and nothing else.
say "a directory of 1,000,000 entries that changes while it is listed"
entries=$(at_scale 1000000 20000)
for_everybody "listing of $entries entries" "$stage_dir/tests/posix/large.sh" "$entries"
if [ -z "${NTR_PJDFSTEST:-}" ]; then
	skips+=("pjdfstest: NTR_PJDFSTEST names no checkout of it")
elif [ "$(id -u)" -ne 0 ]; then
	skips+=("pjdfstest: not run by root")
elif ! command -v prove >/dev/null || ! command -v openssl >/dev/null; then
	skips+=("pjdfstest: prove (perl) and openssl are needed")
else
	for uring in "" 0; do # io_uring where the kernel has it, and /dev/fuse
		say "pjdfstest in a session${uring:+ over /dev/fuse}"
		as root env ${uring:+NTR_URING=$uring} "$top/tests/posix/pjdfstest.sh" session "$NTR_PJDFSTEST" ||
			failures+=("pjdfstest in a session${uring:+ over /dev/fuse}")
	done
	if [ "$scale" -ge 10 ]; then
		skips+=("pjdfstest with a fold after every call: only below --scale 10")
	else
		say "pjdfstest with a fold after every call (what fails is listed in docs/posix.md)"
		as root env PJD_FAILED="$stage_dir/pjd-failed" "$top/tests/posix/pjdfstest.sh" folded "$NTR_PJDFSTEST" || true
		# | `script` | failed in a session, at most | …
		awk 'NR == FNR { most[$1] = $2; next } $2 > most[$1] { print $1 ": " $2 " failed, " most[$1] + 0 " listed"; bad = 1 } END { exit bad }' \
			<(sed -nE 's/^\| `([a-z]+\/[0-9]+)` \| ([0-9]+) \|.*/\1.t \2/p' "$top/docs/posix.md") \
			<(cut -d: -f1 "$stage_dir/pjd-failed" | sort | uniq -c | awk '{ print $2, $1 }') ||
			failures+=("pjdfstest with a fold after every call: more fails than docs/posix.md lists")
	fi
fi
