# Resident memory of the daemon, in jobs as large as they come: bounded, whatever the size.
for_everybody "memory" "$stage_dir/tests/long/memory-one.sh" "$(at_scale 1000000 20000)" "$(at_scale 10240 256)" \
	"$(at_scale 100 10)"
