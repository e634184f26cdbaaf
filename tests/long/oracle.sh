# The oracle: random operations in a session and in a plain directory, in all 1,000,000 without kills (half as root, half
# as the ordinary user), and 200,000 with kills of every process.
seed=${NTR_TEST_SEED:-$((RANDOM * 32768 + RANDOM + 1))}
oracle() {
	local label=$1 sequences=$2
	shift 2
	for_everybody "oracle$label, seed $seed" "$stage_dir/tests/long/with-daemon.sh" /usr/bin/python3 \
		"$stage_dir/tests/helpers/oracle.py" --seed "$seed" --sequences "$sequences" "$@"
}
if command -v cc >/dev/null; then
	oracle "" "$(at_scale 25 1)" --ops 20000 --each 500
	oracle " with kills" "$(at_scale 20 1)" --ops 5000 --each 150 --kills
else
	skips+=("oracle: no C compiler")
fi
