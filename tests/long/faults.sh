# Every failing write of every operation, every failing allocation of a call, supervisors killed at every step of a
# session's life; what crashes of writers lose.
units "failing writes" test_ctl_fault NTR_LONG=1
units "failing allocations" test_ctl_alloc NTR_LONG=1
for ((i = 1; i <= $(at_scale 50 1); i++)); do
	units "life of sessions ($i)" test_ctl_life
done
say "the store's own"
unit "store: failing writes and allocations" test_store_fault
unit "store: killed writers" test_store_crash
unit "store: a disk that fails for a while" test_tree_resume NTR_LONG=1
