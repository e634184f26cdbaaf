# run_python when the code, the machine or somebody else misbehaves: the call has a defined result, and the next one works.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

py() { ntr py "$@"; }

works() {
	run py -c 'print("works")'
	assert_success
	assert_output works
}

# The warm interpreter of the session.
zygote() { pgrep -f "ntr: the session's Python" | while read -r pid; do grep -qz "NTR_STORE=$NTR_STORE" "/proc/$pid/environ" && echo "$pid"; done | head -1; }

@test "a timeout ends the tree, keeps what was printed and written" {
	run --separate-stderr py --json --timeout 1 -c '
import subprocess
open("f", "w").write("kept"); cache["k"] = 1
print("part")
subprocess.Popen(["sleep", "77"])
while True: pass'
	assert_failure 124
	assert_line --partial '"timed_out":true'
	local said=$output
	assert_equal "$(json '["stdout"]' <<<"$said")" part
	[[ $(json '["error"]' <<<"$said") == 'TimeoutError: the call ran longer than its limit of 1 s'* ]]
	[[ $(json '["hints"][0]' <<<"$said") == *'longer timeout' ]]
	run ntr ps --json
	assert_output ''
	run py -c 'open("f").read(), cache["k"]'
	assert_output "('kept', 1)"
}

@test "memory, recursion, crashes" {
	run py --memory 100 -c 'x = bytearray(10**9)'
	assert_failure 1
	assert_line MemoryError
	assert_line --partial '[hint: the call may take 100 MB of memory'
	run py --memory 100 -c $'x = []\nwhile True: x.append("a" * 1000 + str(len(x)))'
	assert_failure 1
	assert_line MemoryError
	run py -c $'def f(): f()\nf()'
	assert_failure 1
	assert_line --partial 'RecursionError'
	run py -c 'import ctypes; ctypes.string_at(0)'
	assert_failure 139
	assert_line 'the interpreter was ended by signal 11 (SIGSEGV)'
	run py -c 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)'
	assert_failure 137
	works
}

@test "endless output is bounded, in memory too" {
	run --separate-stderr py --json --timeout 2 -c $'import sys\nwhile True: sys.stdout.write("x" * 100000); sys.stderr.write("y" * 100000)'
	assert_failure 124
	local said=$output
	assert_equal "$(json '["truncated"]' <<<"$said")" true
	assert_equal "$(json '["stdout"].count("x")' <<<"$said")" 32000
	assert_equal "$(json '["stderr"].count("y")' <<<"$said")" 32000
	local rss; rss=$(ntr daemon status --json | json '["rss"]')
	((rss < 200000000))
	run py --json -c 'x = list(range(10**7)); y = "z" * 10**8' # a huge result
	assert_success
	[[ $(json '["notes"]' <<<"$output") == *'x is too large to hand over'*'y is too large to hand over'* ]]
}

@test "a closed, corrupted or stalled channel costs that call its result only" {
	local code
	for code in 'os.write(fd, b"garbage!" * 10)' 'os.write(fd, b"\xff\xff\xff\x7f{}")' 'os.write(fd, b"\0\0\x10\0{")' \
		'os.write(fd, b"\x02\0\0\0{}")' 'os.write(fd, b"\x1b\0\0\0{\"cache\":\"get\",\"key\":5,\"n\":1}")' 'os.close(fd)'; do
		run timeout 30 ntr py -c "
import os
open('f', 'a').write('x')
for fd in range(3, 40):
    try: $code
    except OSError: pass
print('printed')
os._exit(0)"
		assert_success
		assert_line printed
		assert_line --partial 'there is no result'
	done
	run ntr cat f
	assert_output xxxxxx
	run py -c 'import os; os.close(1); print("x")'
	assert_failure 1
	assert_line --partial 'Bad file descriptor'
	works
}

@test "a killed or stopped warm interpreter is replaced" {
	works
	kill -9 "$(zygote)"
	works
	run py -c 'import os; os.kill(os.getppid(), 9); print("still here")'
	assert_success
	assert_output 'still here'
	works
	run timeout 30 ntr py -c 'import os, signal; os.kill(os.getppid(), signal.SIGSTOP); print("stopped it")'
	assert_success
	assert_output 'stopped it'
	works
}

@test "a fork bomb ends with the timeout" {
	# As far as this rung holds: the limit is one that the code sets itself, and that does not bind root.
	((EUID)) || skip 'the limit on processes does not bind root'
	run timeout 60 ntr py --timeout 2 -c '
import os, resource
n = len(os.listdir("/proc"))
resource.setrlimit(resource.RLIMIT_NPROC, (n + 100, n + 100))
while True:
    try: os.fork()
    except OSError: pass'
	assert_failure 124
	run ntr ps --json
	assert_output ''
	works
}

@test "interrupted, and abandoned by its client" {
	ntr py -c 'import time; print("up", flush=True); time.sleep(60)' >out 2>err &
	until grep -qs up out; do sleep 0.1; done
	kill -INT $!
	wait $! && false
	assert_equal $? 130
	assert_equal "$(tail -1 err)" KeyboardInterrupt
	rm out # it says "up" until the shell in the background has emptied it
	ntr py -c 'import time; open("w", "w").close(); print("up", flush=True); time.sleep(60)' >out 2>err &
	until grep -qs up out; do sleep 0.1; done
	kill -9 $!
	works # waits for the other one's end
	run ntr ls
	assert_output w
}

# Starts a call that has written a file and the cache, and goes on.
begin_writing() {
	rm -f out
	ntr py -c 'open("/workspace/f", "w").write("kept"); cache["k"] = "kept"; print("up", flush=True); import time; time.sleep(60)' >out 2>err &
	until grep -qs up out; do sleep 0.1; done
}

check_recovered() {
	run ntr cat f
	assert_output kept
	run ntr cache get k
	assert_output kept
	works
	assert_equal "$(ntr log --json | grep -c '"recovered"')" 1
	run ntr fsck
	assert_success
}

@test "kill -9 of the supervisor in the middle of a call" {
	begin_writing
	kill -9 "$(ps -o ppid= -p "$(zygote)")"
	wait $! && false
	assert_equal $? 125
	grep -q "supervisor ended unexpectedly" err
	check_recovered
}

@test "kill -9 of the daemon in the middle of a call" {
	begin_writing
	kill -9 "$(ntr daemon status --json | json '["pid"]')"
	wait $! && false
	assert_equal $? 125
	check_recovered
}

@test "what this version cannot give is refused by name" {
	works
	cat >ask.py <<-'X'
		import sys, os
		sys.path.insert(0, sys.argv[1])
		from client import Client, ReplyError
		null = os.open("/dev/null", os.O_RDONLY)
		with Client(os.environ["NTR_STORE"]) as c:
		    for more in ({"isolation": "process"}, {"isolation": "kernel"}, {"network": False}, {"isolation": "nonsense"},
		                 {"code": 5}, {"inputs": []}, {"inputs": {"a": {"$": "x"}}}, {"objects": [{"name": "_o"}]}, {"echo": "some"},
		                 {"policy": 1}, {"policy": {"modules": [{"include": 1}]}}, {"preload": ["a b"]}, {"memory_mb": 0}, {"argv": "x"}):
		        try:
		            c.request(dict({"op": "py", "session": "default", "code": "1", "capture": True, "fds": 1}, **more), [null])
		            print("taken")
		        except ReplyError as e:
		            print(e.error["kind"])
		    print(c.request({"op": "py", "session": "default", "code": "6*7", "capture": True, "isolation": "none", "network": True}, [null])["echo"])
	X
	run /usr/bin/python3 ask.py "$NTR_TESTS/helpers"
	assert_success
	assert_output "$(printf 'isolation\n%.0s' 1 2 3 4; printf 'usage\n%.0s' 1 2 3 4 5 6 7 8 9 10; echo 42)"
}
