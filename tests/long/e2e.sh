# All end-to-end tests, the long ones too. Scaled down they are the quick tier's alone.
if [ "$scale" -ge 10 ]; then
	skips+=("end to end with NTR_LONG=1: only below --scale 10 (tools/test.sh runs the others)")
	return
fi
if [ "$(id -u)" -eq 0 ]; then
	bats_run root "long, root" "$stage_dir" "" NTR_LONG=1 NTR_KILLS="$(at_scale 100 6)" || failures+=("end to end, long, root")
else
	skips+=("long, as root: not run by root")
fi
if has_userns; then
	bats_run user "long, user" "$stage_dir" "" NTR_LONG=1 NTR_KILLS="$(at_scale 100 6)" ||
		failures+=("end to end, long, ordinary user")
else
	skips+=("long, as an ordinary user: this place refuses user namespaces (a chroot, or a host's policy)")
fi
