# The Python package: installed by pip into a virtual environment; its tests, mypy, ruff. Root and the ordinary user.
python_venv=$stage_dir/venv
python_find() {
	local p
	for p in /usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3; do
		p=$(command -v "$p") && "$p" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo "$p" && return
	done
}
python_install() {
	"$1" -m venv "$python_venv" &&
		"$python_venv/bin/pip" install -q --disable-pip-version-check 'setuptools>=61' wheel 'pytest>=7' mypy ruff &&
		"$python_venv/bin/pip" install -q --disable-pip-version-check --no-build-isolation "$stage_dir/python"
}
python_checks() {
	(cd "$stage_dir/hooks/python" && "$python_venv/bin/mypy" --strict --cache-dir "$stage_dir/mypy" ntr && "$python_venv/bin/ruff" check --no-cache .)
}
python_run() {
	say "Python package, $1"
	as "$1" env NTR_BIN="$stage_dir/bin" PYTHONDONTWRITEBYTECODE=1 NTR_TEST_KILLS_S="$(at_scale 120 4)" \
		"$python_venv/bin/python" -m pytest -q -p no:cacheprovider "$stage_dir/hooks/python/tests" ||
		failures+=("Python package, $1")
}
python_with=$(python_find)
if [ -z "$python_with" ]; then
	skips+=("Python package: no Python from 3.10 on with venv")
	return
fi
# The staged files, which are those of the commit, in a folder where pip may leave its own.
cp -r "$stage_dir/hooks/python" "$stage_dir/"
if ! python_install "$python_with" >"$stage_dir/pip.log" 2>&1; then
	cat "$stage_dir/pip.log"
	skips+=("Python package: pip cannot install what its tests need")
	return
fi
"$python_venv/bin/pip" install -q --disable-pip-version-check numpy pandas >>"$stage_dir/pip.log" 2>&1 ||
	skips+=("Python package, arrays and frames: pip cannot install numpy and pandas")
python_checks || failures+=("Python package: mypy, ruff")
chmod -R a+rX "$stage_dir/hooks" "$stage_dir/tests" "$python_venv"
if [ "$(id -u)" -eq 0 ]; then
	python_run root
else
	skips+=("Python package as root: not run by root")
fi
if ! has_userns; then
	skips+=("Python package as an ordinary user: this place refuses user namespaces (a chroot, or a host's policy)")
elif as user "$python_venv/bin/python" -c pass 2>/dev/null; then
	python_run user
else
	skips+=("Python package as an ordinary user: $python_with is not for everybody")
fi
