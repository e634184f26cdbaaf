# Power failures: every cut of the recorded calls with every variant; and cuts of a whole filesystem.
say "power failures: the store, behind every call"
as root env NTR_BIN="$stage_dir/bin" /usr/bin/python3 "$stage_dir/tests/crash/powercut.py" \
	$([ "$scale" -gt 1 ] && echo --seconds $((3600 / scale)) || echo --all) || failures+=("power failures of the store")
if [ "$(id -u)" -eq 0 ] && [ -c /dev/loop-control ]; then
	say "power failures: a whole filesystem"
	as root env NTR_BIN="$stage_dir/bin" /usr/bin/python3 "$stage_dir/tests/crash/powercut_disk.py" \
		$([ "$scale" -gt 1 ] && echo --cuts "$(at_scale 2000 20)" || echo --all) || failures+=("power failures of a filesystem")
else
	skips+=("power failures of a whole filesystem: need root and loop devices")
fi
