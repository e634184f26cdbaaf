# A full disk in the middle of a call, an import, a commit, a start: a message with the status, nothing lost, no restart of
# the daemon needed. The store has a file system of its own: an ext4 in a file for root, a tmpfs for others (and for root).
load bad_common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

# on KIND SIZE [MKFS OPTIONS]: the script (stdin) inside, with the store there
on()
{
	local kind=$1 size=$2
	shift 2
	{
		echo "KIND=$kind SIZE=$size MKFS='$*'"
		cat <<-'END'
			mkdir -p "$NTR_STORE"
			if [[ $KIND == ext4 ]]; then
				truncate -s "$SIZE" ../image
				mkfs.ext4 -q -F -m 0 $MKFS ../image
				mount -o loop ../image "$NTR_STORE"
			else
				mnt tmpfs "$NTR_STORE" "size=$SIZE,mode=700"
			fi
			trap 'ntr daemon stop; cd /; umount "$NTR_STORE" 2>/dev/null || true' EXIT
			filler=$NTR_STORE/upper/filler
			# fill [KIB]: all of the disk but so much
			fill()
			{
				local s
				touch "$filler"
				for s in 64M 8M 1M 64K 4K 1K; do
					while fallocate -o "$(stat -c %s "$filler")" -l $s "$filler" 2>/dev/null; do :; done
				done
				[[ -z ${1:-} ]] || truncate -s -"$1"K "$filler"
			}
			free() { rm -f "$filler"; }
			commits() { ntr log --json | wc -l; }
			noise() { head -c "$2" /dev/urandom >"$1"; }
		END
		cat
	} | inside
}

kinds() { [[ $(id -u) != 0 ]] || echo ext4; echo tmpfs; }

@test "a call that fills the disk: what it wrote is there, and a later call can clear it away" {
	local kind
	for kind in $(kinds); do
		on "$kind" 128M <<-'END'
			ntr run -c 'echo 1 > f'
			pid=$(daemon_pid)
			expect 125 'head: ' 'No space left on device' 'ntr: ' 'free space' '`ntr commit -s default`' 'what the command wrote is kept' -- \
				ntr run -c 'echo 2 > f; head -c 200M /dev/urandom > big; exit 3'
			[[ $(commits) == 2 ]]
			[[ $(ntr cat f) == 2 ]]
			[[ $(ntr show default~0 --json | json '["changes"]["created"]') == 1 ]]
			expect 0 -- ntr run -c 'rm big; echo 3 >> f'
			[[ $(commits) == 3 && $(daemon_pid) == "$pid" ]]
			ntr run -c 'echo 4 >> f'
			ntr rollback --steps 2
			[[ $(ntr run -- cat f) == 1 ]]
			ntr fsck
		END
		rm -rf image "$NTR_STORE"
	done
}

@test "a commit that does not fit: told, and made when there is room" {
	local kind
	for kind in $(kinds); do
		on "$kind" 160M <<-'END'
			ntr run -c 'echo 1 > f'
			pid=$(daemon_pid)
			fill 40000
			expect 125 'No space left on device' '`ntr commit -s default`' -- \
				ntr run -c 'head -c 30M /dev/urandom > big; sha256sum big > sum; mkdir d; mv f d'
			expect 125 '"stdout":"said\n"' 'No space left on device' -- ntr run --json -c 'echo said; head -c 1M /dev/urandom > more'
			expect 1 "said" "No space left on device" -- ntr tool terminal '{"command": "echo said; echo x >> more"}'
			[[ $(commits) == 2 ]]
			expect 1 'ntr: ' 'No space left on device' '; ' -- ntr commit -m full
			expect 1 'ntr: ' 'No space left on device' '; ' -- ntr rollback --steps 1
			[[ $(ntr run --no-commit -- sha256sum -c sum) == 'big: OK' ]]
			free
			expect 0 'created   big' 'created   sum' -- ntr status
			expect 0 -- ntr commit -m room
			[[ $(commits) == 3 && $(daemon_pid) == "$pid" ]]
			ntr stop
			[[ $(ntr run -c 'sha256sum -c sum; cat d/f') == $'big: OK\n1' ]]
			ntr fsck
		END
		rm -rf image "$NTR_STORE"
	done
}

@test "an import that does not fit leaves nothing" {
	local kind
	mkdir src
	for i in 1 2 3 4; do head -c 40M /dev/urandom >src/$i; done
	tar -cf src.tar src
	for kind in $(kinds); do
		on "$kind" 256M <<-'END'
			ntr run -c 'echo 1 > f'
			pid=$(daemon_pid)
			fallocate -l 128M "$filler"
			for from in src src.tar; do
				expect 1 'ntr: ' 'No space left on device' 'free s' -- ntr new big --from $from
				[[ $(ntr sessions --json | wc -l) == 1 ]]
			done
			free
			mkdir small
			cp /etc/passwd small
			ntr new small --from small
			cmp <(ntr cat -s small passwd) /etc/passwd
			ntr run -c 'echo 2 >> f'
			[[ $(daemon_pid) == "$pid" ]]
			ntr fsck
			rm -r small
		END
		rm -rf image "$NTR_STORE"
	done
}

@test "put, new, fork, run on a disk without a byte left" {
	local kind
	for kind in $(kinds); do
		on "$kind" 128M <<-'END'
			ntr run -c 'for i in $(seq 5000); do echo line $i; done > f; sha256sum f > sum'
			noise much 3M
			fill
			expect 1 'ntr: write f: ' 'No space left on device' '; free some space' -- ntr put much f
			expect 1 'ntr: write n: ' 'No space left on device' '; free some space' -- ntr put much n
			expect 0 'f: OK' -- ntr run --no-commit -c 'sha256sum -c sum; ls'
			expect 1 'No such file' -- ntr cat n
			expect 125 'ntr: ' 'No space left on device' '; free ' -- ntr run -s other -- true
			# what is small may fit into the log
			ntr fork default forked || [[ $KIND == tmpfs ]]
			expect 0 -- ntr log
			expect 0 -- ntr ls
			free
			ntr put much f
			cmp <(ntr cat f) much
			ntr run -s other -- true
			ntr fsck
		END
		rm -rf image "$NTR_STORE"
	done
}

@test "a daemon that ends, or is killed, on a full disk" {
	local kind
	for kind in $(kinds); do
		on "$kind" 128M <<-'END'
			ntr run -c 'echo 1 > f'
			for how in stop kill; do
				fill 9000
				ntr run --no-commit -c "echo $how >> f; head -c 8M /dev/urandom > big; sha256sum big > sum" || true
				fill
				if [[ $how == stop ]]; then ntr daemon stop; else kill -9 "$(daemon_pid)"; sleep 0.3; fi
				ntr log >out 2>&1 || grep -q 'No space left on device.*; free' out || fail "$(<out)"
				ntr run -- true >out 2>&1 || grep -q 'No space left on device.*; free' out || fail "$(<out)"
				free
				expect 0 'big: OK' "$how" -- ntr run -c 'sha256sum -c sum; cat f'
			done
			[[ $(ntr run -- cat f) == $'1\nstop\nkill' ]]
			ntr fsck
		END
		rm -rf image "$NTR_STORE"
	done
}

@test "a full disk at the start: room kept for it lets the session be cleared" {
	[[ $(id -u) == 0 ]] || skip "takes a file system that root makes"
	on ext4 700M <<-'END'
		ntr run -c 'echo 1 > f'
		ls "$NTR_STORE"/reserve.*
		ntr run --no-commit -c 'fallocate -l 10M big'
		ntr daemon stop
		fill
		expect 0 'big' -- ntr run -c 'ls; rm big'
		[[ $(ntr run -- ls) == f ]]
		ntr daemon stop
		free
		[[ $(ntr run -- cat f) == 1 ]]
		ls "$NTR_STORE"/reserve.[01]
		ntr fsck
	END
}

@test "no inodes left" {
	[[ $(id -u) == 0 ]] || skip "takes a file system that root makes"
	on ext4 200M -N 400 <<-'END'
		ntr run -c 'echo 1 > f'
		ntr run -c 'for i in $(seq 500); do echo $i > n$i || break; done' >out 2>&1 || true
		grep -q 'No space left on device' out
		expect 125 'No space left on device' '; free some space (or inodes)' -- ntr run -s other -- true
		expect 0 -- ntr run -c 'rm n*'
		ntr run -s other -- true
		[[ $(ntr run -- cat f) == 1 ]]
		ntr fsck
	END
}
