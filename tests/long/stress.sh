# stress-ng, fio and dbench in NTR_STRESS_SESSIONS sessions side by side (by default two a CPU and one): a stressor mostly waits
# or fights with its own twin, so five on two CPUs still meet everything they would alone. Root gets the packages when they
# are missing.
missing=
for tool in stress-ng fio dbench; do command -v $tool >/dev/null || missing+=" $tool"; done
if [ -n "$missing" ] && [ "$(id -u)" -eq 0 ]; then
	apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 && missing=
fi
if [ -n "$missing" ]; then
	skips+=("stress: not installed:$missing")
else
	for_everybody "stress, $(at_scale 60 5) s each" "$stage_dir/tests/long/stress-one.sh" "$(at_scale 60 5)" \
		"${NTR_STRESS_SESSIONS:-$((2 * $(nproc) + 1))}"
fi
