# kill -9 at random moments, of the daemon, of supervisors, of calls, of pass-throughs and of all of them, while other
# sessions work: 520 kills as root and 650 as the ordinary user.
seed=${NTR_TEST_SEED:-$((RANDOM * 32768 + RANDOM + 1))}
for_everybody "kills, seed $seed" "$stage_dir/tests/long/with-daemon.sh" /usr/bin/python3 "$stage_dir/tests/crash/kills.py" \
	--rounds "$(at_scale 130 4)" --load 2 --seed "$seed"
