# Random histories against simple twins: the store, absorb, the tree, the diff, parallel sessions.
seeds=$(at_scale 20 3)
for ((i = 1; i <= seeds; i++)); do
	seed=$((${NTR_TEST_SEED:-RANDOM * 32768 + RANDOM + 1} + i - 1))
	say "models, seed $seed ($i of $seeds)"
	unit "store against its twin" test_store_model NTR_TEST_SEED="$seed" NTR_TEST_STEPS="$(at_scale 100000 3000)"
	unit "absorb against its twin" test_absorb_random NTR_TEST_SEED="$seed" NTR_TEST_STEPS="$(at_scale 20000 300)"
	unit "tree against its twin" test_tree_model NTR_TEST_SEED="$seed"
	unit "diff against the listings" test_diff_model NTR_SEED="$seed"
	unit "parallel sessions" test_ctl_threads NTR_TEST_STEPS="$(at_scale 2000 40)"
done
