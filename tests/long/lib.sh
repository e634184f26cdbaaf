# lib.sh: what the parts of the long tier share. Sourced by tests/long/run.

# at_scale FULL LEAST: a count divided by the scale.
at_scale() {
	local n=$(($1 / scale))
	echo $((n > $2 ? n : $2))
}

# The unit tests beside the programs, where an ordinary user can run them.
stage_units() {
	mkdir "$stage_dir/unit"
	cp "$top"/build/release/tests/test_* "$stage_dir/unit/"
	chmod -R a+rX "$stage_dir/unit"
}

# as WHO CMD…: as root or as the ordinary user, with a home and a runtime directory of its own.
as() {
	local who=$1 home status=0
	shift
	home=$(mktemp -d "${TMPDIR:-/tmp}/ntr-long.XXXXXX")
	mkdir "$home/run"
	chmod 700 "$home" "$home/run"
	local cmd=(env HOME="$home" XDG_RUNTIME_DIR="$home/run" TMPDIR="$home" NTR_STORE="$home/store"
		NTR_LIBEXEC="$stage_dir/bin" PATH="$stage_dir/bin:$PATH" "$@")
	if [ "$who" = user ]; then
		[ "$(id -u)" -ne 0 ] || chown -R 65534:65534 "$home"
		(cd "$stage_dir" && as_user "${cmd[@]}") || status=$? # the checkout may lie in root's home
	else
		chmod 1777 "$home" # tests become the ordinary user themselves
		"${cmd[@]}" || status=$?
	fi
	rm -rf "$home"
	return $status
}

# for_everybody LABEL CMD…: as root and as the ordinary user; who cannot is listed.
for_everybody() {
	local label=$1
	shift
	if [ "$(id -u)" -eq 0 ]; then
		say "$label, root"
		as root "$@" || failures+=("$label, root")
	else
		skips+=("$label as root: not run by root")
	fi
	if has_userns; then
		say "$label, user"
		as user "$@" || failures+=("$label, user")
	else
		skips+=("$label as an ordinary user: this place refuses user namespaces (a chroot, or a host's policy)")
	fi
}

# unit LABEL TEST [VAR=VALUE…]: as whoever runs this. units: as root and as the ordinary user.
unit() {
	local label=$1 name=$2
	shift 2
	as root env "$@" "$stage_dir/tests/long/quiet.sh" "$stage_dir/unit/$name" || failures+=("$label ($name $*)")
}
units() {
	local label=$1 name=$2
	shift 2
	for_everybody "$label" env "$@" "$stage_dir/tests/long/quiet.sh" "$stage_dir/unit/$name"
}
