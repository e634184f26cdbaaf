# A store whose file system cannot hold an upper (overlayfs, as a container's root is): changes are kept in memory.
load bad_common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

# The script (stdin) inside, with the store on an overlay.
on_overlay()
{
	{
		cat <<-'END'
			mkdir ../ov
			mnt tmpfs ../ov mode=700
			mkdir ../ov/{l,u,w,m}
			userxattr=; [[ $(id -u) == 0 ]] || userxattr=userxattr,
			mnt overlay ../ov/m "${userxattr}lowerdir=$PWD/../ov/l,upperdir=$PWD/../ov/u,workdir=$PWD/../ov/w"
			export NTR_STORE=${NTR_STORE%/*}/ov/m/store
			supervisor() { sed -n '$s/ .*//p' "$NTR_STORE"/upper/1.*/init | tail -1; }
			gone() { local i; for i in {1..100}; do kill -0 "$1" 2>/dev/null && [[ $(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null) != Z ]] || return 0; sleep 0.05; done; return 1; }
		END
		cat
	} | inside
}

@test "every kind of change is committed; forks, rollbacks, folds" {
	on_overlay <<-'END'
		ntr run -c 'mkdir -p d/e; echo 1 > d/e/f; ln d/e/f h; ln -s d l; mkfifo p; chmod 751 .; setfattr -n user.x -v y .; chmod 600 h'
		[[ $(ntr run -c 'df --output=fstype . | tail -1; stat -c %a:%h . h; getfattr --only-values -n user.x .') == *$'751:1\n600:2\ny' ]]
		ntr fork default other
		ntr run -c 'mv d d2; rm l p; echo 2 >> h; touch -d @1 d2/e'
		[[ $(ntr run -c 'cat d2/e/f; ls') == $'1\n2\nd2\nh' ]]
		[[ $(ntr run -s other -c 'ls; cat h') == $'d\nh\nl\np\n1' ]]
		ntr run -c 'for i in $(seq 400); do echo $i > n$i; done'
		sleep 0.6 # folded meanwhile
		[[ $(ntr run -c 'ls n* | wc -l; cat n400; stat -c %a .') == $'400\n400\n751' ]]
		ntr run -c 'rm n*; echo 3 >> h'
		ntr rollback --steps 1
		[[ $(ntr run -c 'ls n* | wc -l; cat h') == $'400\n1\n2' ]]
		ntr rollback --steps 2
		[[ $(ntr run -c 'ls; cat h') == $'d\nh\nl\np\n1' ]]
		ntr run -c 'sleep 300 >/dev/null 2>&1 & echo bg > bg'
		ntr stop
		[[ $(ntr run -- cat bg) == bg ]]
		ntr fsck
		ntr daemon stop
		left=$(find "$NTR_STORE/upper" -mindepth 1 -maxdepth 1 ! -name 'spare.*'); [[ -z $left ]] || fail "left: $left"
	END
}

@test "its size: what does not fit is told to the call, and the rest is committed" {
	NTR_UPPER_TMPFS_SIZE=8M on_overlay <<-'END'
		[[ $(ntr run -- df --output=size -B1M . | tail -1) -eq 8 ]]
		expect 1 'head: ' 'No space left on device' -- ntr run -c 'echo 1 > f; head -c 20M /dev/zero > big'
		[[ $(ntr run -c 'cat f; rm big') == 1 ]]
		ntr run -c 'head -c 5M /dev/urandom > a; sha256sum a > s'
		ntr stop
		ntr run -c 'head -c 5M /dev/urandom > b; sha256sum b >> s'
		ntr stop
		[[ $(ntr run -- sha256sum -c s) == $'a: OK\nb: OK' ]]
		ntr daemon stop
		NTR_UPPER_TMPFS_SIZE=nonsense ntr run -- true
		ntr daemon stop
		memory=$(( $(getconf _PHYS_PAGES) * $(getconf PAGESIZE) / 1048576 ))
		[[ $(ntr run -- df --output=size -B1M . | tail -1) -le $((memory / 2 + 1)) ]]
		ntr daemon stop
		NTR_UPPER_TMPFS_SIZE=1% ntr run -- true
		[[ $(ntr run -- df --output=size -B1M . | tail -1) -le $((memory / 100 + 1)) ]]
	END
}

@test "what no commit holds outlives the daemon, and the supervisor, but not both" {
	on_overlay <<-'END'
		ntr run -c 'echo 1 > f'
		ntr run --no-commit -c 'echo daemon >> f; mkdir d; mv f d; sleep 300 >/dev/null 2>&1 & echo $! > pid'
		pid=$(ntr cat pid) super=$(supervisor)
		kill -9 "$(daemon_pid)"
		gone "$pid" || fail "its processes live on"
		[[ $(ntr run -- cat d/f) == $'1\ndaemon' ]]
		[[ $(ntr log -n 1 --json | json '["tool"]') == recovered ]]
		gone "$super" || fail "the old supervisor lives on"
		ntr run --no-commit -c 'echo supervisor >> d/f'
		kill -9 "$(supervisor)"
		[[ $(ntr run -- cat d/f) == $'1\ndaemon\nsupervisor' ]]
		ntr run --no-commit -c 'echo both >> d/f'
		kill -9 "$(daemon_pid)" "$(supervisor)"
		[[ $(ntr run -- cat d/f) == $'1\ndaemon\nsupervisor' ]]
		grep -q 'was in memory, and went with its supervisor' "$NTR_STORE/ntrd.log"
		ntr run --no-commit -c 'echo dropped >> d/f'
		super=$(supervisor)
		kill -9 "$(daemon_pid)"
		ntr rollback --discard --steps 1
		gone "$super" || fail "the old supervisor lives on"
		ntr fsck
	END
}

@test "a daemon that is stopped commits it" {
	on_overlay <<-'END'
		ntr run --no-commit -c 'echo 1 > f'
		ntr daemon stop
		[[ $(ntr run -- cat f) == 1 ]]
		[[ $(ntr log -n 1 --json | json '["tool"]') == staged ]]
	END
}

@test "doctor says so" {
	on_overlay <<-'END'
		ntr doctor >out || grep -q '^missing' out
		grep -q '^note  *store .* is on overlayfs, which cannot hold the changes of a live session: they are kept in memory' out
		grep -q 'what is not committed is lost by a power cut' out
		grep -q 'use a store on ext4, xfs or btrfs' out
	END
}
