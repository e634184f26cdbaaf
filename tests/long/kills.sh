# kill -9 at random moments, of the daemon, of supervisors and of calls.
seed=${NTR_TEST_SEED:-$((RANDOM * 32768 + RANDOM + 1))}
for target in daemon supervisor call; do
	for_everybody "kills: $target, seed $seed" "$stage_dir/tests/long/kill-one.sh" "$target" "$(at_scale 100 4)" "$seed"
done
