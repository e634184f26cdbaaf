# The tools' own scenarios, the long ones too, under every kind of pause between two calls (NTR_FOLDS of tests/bats/tools.bash).
# Root installs what is missing first; what cannot be had is skipped by its test, with the reason.
tools_packages=(acl attr ccache cmake emacs-nox fakeroot gcc gnupg inotify-tools joe lld make nano neovim ninja-build nodejs npm
	openssh-client postgresql python3-pip python3-setuptools python3-venv python3-wheel rsync sqlite3 strace util-linux vim cargo golang-go)
tools_programs=(cargo:cargo go:golang-go node:nodejs npm:npm)
tools_wanted() {
	local p present
	for p in "${tools_packages[@]}"; do
		for present in "${tools_programs[@]}"; do # one that did not come from a package will do
			[ "$p" != "${present#*:}" ] || ! command -v "${present%:*}" >/dev/null || continue 2
		done
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"
	done
}
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
	mapfile -t tools_missing < <(tools_wanted)
	for p in "${tools_missing[@]}"; do
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$p" >/dev/null 2>&1 || skips+=("tools: package $p cannot be installed")
	done
fi
# Tools in root's home are no use to the ordinary user: a copy is.
tools_path=$PATH
if [ "$(id -u)" -eq 0 ] && rust=$(rustc --print sysroot 2>/dev/null) && [ "${rust#"$HOME"/}" != "$rust" ]; then
	mkdir "$stage_dir/rust"
	tar -C "$rust" --exclude=share -cf - . | tar -C "$stage_dir/rust" -xf -
	chmod -R a+rX "$stage_dir/rust"
	tools_path=$stage_dir/rust/bin:$PATH
fi
for folds in stop mixed keep quiet; do
	[ "$scale" -lt 10 ] || [ $folds = mixed ] || continue
	tools_with=(NTR_LONG=1 NTR_FOLDS=$folds)
	[ "$scale" -lt 10 ] || tools_with=(NTR_FOLDS=$folds)
	if [ "$(id -u)" -eq 0 ]; then
		bats_run root "tools, $folds, root" "$stage_dir" /tools_ "${tools_with[@]}" || failures+=("tools, $folds, root")
	else
		skips+=("tools, $folds, as root: not run by root")
	fi
	if has_userns; then
		bats_run user "tools, $folds, user" "$stage_dir" /tools_ "${tools_with[@]}" PATH="$tools_path" || failures+=("tools, $folds, user")
	else
		skips+=("tools, $folds, as an ordinary user: this place refuses user namespaces (a chroot, or a host's policy)")
	fi
done
