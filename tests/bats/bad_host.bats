# Hosts that lack what ntr is built on, or forbid it: the message names the missing piece and the fix; run's status is 125,
# others' 1; no session is harmed, and what needs no view goes on working.
load bad_common

setup()
{
	ntr_setup
	mkdir "$TEST_DIR/ws"
	ntr new s --root "$TEST_DIR/ws"
	ntr put -s s /etc/passwd p
	ntr daemon stop
}
teardown() { ntr_teardown; }

# Nothing of a view is left, and it can be used again.
intact()
{
	assert_equal "$(ntr run -s s -- ls)" p
	ntr stop -s s
	ntr fsck
	ntr daemon stop
	run find "$NTR_STORE/upper" -mindepth 1 -maxdepth 1 ! -name 'spare.*'
	assert_output ""
}

@test "no /dev/fuse, or one that is none" {
	inside <<-'END'
		mkdir dev m
		for d in null zero urandom tty; do touch dev/$d; mnt bind dev/$d /dev/$d; done
		check()
		{
			expect 125 'ntr: open /dev/fuse: ' "$1" '; run ' 'modprobe fuse' '--device /dev/fuse' -- ntr run -s s -- true
			what='open /dev/fuse: '
			[[ $(id -u) == 0 ]] || what='mount: '
			expect 1 "ntr: $what" '; ' -- ntr mount s m
			expect 1 "ntr: $what" '; ' -- ntr mount s~0 m
			expect 0 p -- ntr ls -s s
			expect 0 -- ntr new other
			expect 0 -- ntr rm other
			expect 1 '/dev/fuse' 'modprobe fuse' -- ntr doctor
		}
		touch empty
		mnt bind /dev/fuse empty
		check 'that is no FUSE device'
		mnt bind /dev dev
		check 'was given no /dev/fuse'
	END
	intact
}

@test "a /dev/fuse that only root may open" {
	[[ $(id -u) == 0 ]] || skip "takes root to make"
	chmod 755 "$TEST_DIR"
	mkdir -m 755 "$TEST_DIR/theirs"
	mkdir -m 700 "$TEST_DIR/theirs/run"
	chown -R 65534:65534 "$TEST_DIR/theirs"
	inside <<-'END'
		mknod fuse c 10 229
		chmod 600 fuse
		mnt bind /dev/fuse fuse
		as() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$T" XDG_RUNTIME_DIR="$T/run" NTR_STORE="$T/store" "$@"; }
		T=${NTR_STORE%/*}/theirs
		cd /
		expect 125 'open /dev/fuse: permission denied (its mode is 0600)' "run 'chmod 0666 /dev/fuse' as root" -- as ntr run -- true
		expect 1 '/dev/fuse' 'Permission denied' 'chmod 666 /dev/fuse' -- as ntr doctor
		as ntr daemon stop
	END
}

@test "no fusermount3, or one that may not mount" {
	[[ $(id -u) != 0 ]] || skip "root needs none"
	mkdir bin
	ln -s "$(type -P bash)" bin/
	PATH=$NTR_BIN:$PWD/bin run -125 ntr run -s s -- true
	assert_message 'mount the versions' 'an ordinary user mounts through fusermount3, and there is none' 'install the package fuse3'
	ntr daemon stop
	# It complains of its mtab first, and goes on.
	printf '#!/bin/bash\nprintf "fusermount3: failed to open /etc/mtab\\nfusermount3: mount failed: Operation not permitted\\n" >&2\nexit 1\n' >bin/fusermount3
	chmod 755 bin/fusermount3
	PATH=$PWD/bin:$PATH run -125 ntr run -s s -- true
	assert_message 'fusermount3: mount failed: Operation not permitted' 'set-uid root'
	ntr daemon stop
	intact
}

@test "no permission to mount" {
	if [[ $(id -u) == 0 ]]; then
		run -125 setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$NTR_BIN/ntr" run -s s -- true
		assert_message 'mount the versions' 'CAP_SYS_ADMIN is missing' 'docker: --cap-add SYS_ADMIN'
		ntr daemon stop
	fi
	inside <<-'END'
		expect 125 'mount the versions' 'ermitted' 'CAP_SYS_ADMIN' -- deny EPERM:mount -- ntr run -s s -- true
		ntr daemon stop
		expect 125 'show the session at' 'mounting is not permitted here' 'CAP_SYS_ADMIN' -- deny EPERM:move_mount -- ntr run -s s -- true
	END
	intact
}

@test "no overlayfs" {
	inside <<-'END'
		say() { local how=$1; shift; expect 125 "mount the session's overlay: " "$@" -- deny "$how" -- ntr run -s s -- true; ntr daemon stop; }
		say ENODEV:fsopen 'this kernel has no overlayfs' 'sudo modprobe overlay'
		say ENOSYS:fsopen 'has no fsopen(2)' 'kernel 5.2 or newer'
		say EPERM:fsopen 'mounting is not permitted here' 'CAP_SYS_ADMIN'
		if [[ $(id -u) == 0 ]]; then
			say EPERM:fsconfig 'mounting is not permitted here' 'CAP_SYS_ADMIN'
		else
			say EPERM:fsconfig 'this kernel gives no overlay to ordinary users' '5.11 or newer'
		fi
		# refused with and without an upper in memory
		say EINVAL:fsconfig 'put the store on ext4, xfs, btrfs or tmpfs'
	END
	intact
}

@test "no namespaces" {
	inside <<-'END'
		if [[ $(id -u) == 0 ]]; then
			what='enter a mount namespace' not='CAP_SYS_ADMIN is missing' limit=user.max_mnt_namespaces
		else
			what='enter a user namespace' not='seccomp' limit=user.max_user_namespaces
		fi
		expect 125 "$what" "$not" '; ' docker -- deny EPERM:unshare -- ntr run -s s -- true
		ntr daemon stop
		expect 125 "$what" "$limit" 'sudo sysctl -w' -- deny ENOSPC:unshare -- ntr run -s s -- true
		ntr daemon stop
		if [[ $(id -u) != 0 ]]; then
			expect 125 "$what" 'CONFIG_USER_NS' 'as root' -- deny EINVAL:unshare -- ntr run -s s -- true
			ntr daemon stop
			echo 0 >/proc/sys/user/max_user_namespaces
			expect 125 "$what" 'user.max_user_namespaces' 'sudo sysctl -w' -- ntr run -s s -- true
			expect 1 'user namespaces  user.max_user_namespaces is 0' 'sysctl -w user.max_user_namespaces' -- ntr doctor
			expect 0 p -- ntr ls -s s
		fi
	END
	intact
}

@test "root of a user namespace, as in a rootless container" {
	unshare -U -r -m true 2>/dev/null || skip "no user namespaces"
	unshare -U -r -m bash -eu <<-'END'
		trap 'ntr daemon stop' EXIT
		ntr run -s s -c 'id -u; mkdir -p d/e; echo 1 > d/e/f; ln d/e/f d/g; setfattr -n user.x -v y d; rm p'
		ntr run -s s -c 'mv d d2; rm d2/g; echo 2 >> d2/e/f'
		ntr stop -s s
		[[ $(ntr run -s s -c 'cat d2/e/f; ls; getfattr --only-values -n user.x d2') == $'1\n2\nd2\ny' ]]
		ntr rollback -s s --steps 2
		[[ $(ntr run -s s -- ls) == p ]]
	END
	intact
}

@test "no supervisor, no daemon" {
	mkdir "$TEST_DIR/libexec"
	export NTR_LIBEXEC=$TEST_DIR/libexec
	cp "$NTR_BIN/ntrd" "$NTR_LIBEXEC/"
	printf '#!/bin/sh\nexit 3\n' >"$NTR_LIBEXEC/ntr-init"
	chmod 755 "$NTR_LIBEXEC/ntr-init"
	run -125 ntr run -s s -- true
	assert_output --regexp '^ntr: [^:]+: .+'
	ntr daemon stop
	rm "$NTR_LIBEXEC/ntr-init"
	mkdir "$NTR_LIBEXEC/ntr-init"
	run -125 ntr run -s s -- true
	assert_message 'start the supervisor' 'install ntr completely'
	ntr daemon stop
	unset NTR_LIBEXEC
	intact
}
