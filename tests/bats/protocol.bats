# The daemon's side of docs/protocol.md: starting and ending, bad clients, many clients, calls whose clients go away.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

client() { /usr/bin/python3 "$NTR_TESTS/helpers/client.py" "$NTR_STORE" "$@"; }

# A program with `c`, a connected client, and the module's names.
python()
{
	PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$NTR_TESTS/helpers /usr/bin/python3 -c "
import os, signal, socket, struct, sys, threading, time
from client import *
store = os.environ['NTR_STORE']
def await_file(session, name):
    with Client(store) as c:
        for _ in range(200):
            try:
                if name in [e['name'] for e in c.request({'op': 'ls', 'session': session})['entries']]: return
            except ReplyError: pass
            time.sleep(0.05)
    assert False, 'no ' + name
$1"
}

daemon_pid() { ntr daemon status --json | json '["pid"]'; }

wait_gone()
{
	for _ in {1..100}; do
		kill -0 "$1" 2>/dev/null || return 0
		sleep 0.1
	done
	return 1
}

# ---- requests

@test "hello comes first, and speaks the protocol" {
	ntr sessions
	run python "
c = Client(store, hello=False)
for msg in ({'op': 'sessions'}, {'op': 'run'}):
    try: c.request(msg)
    except ReplyError as e: assert e.error['kind'] == 'protocol', e.error
    else: assert False
h = c.request({'op': 'hello', 'protocol': 1})
assert h['protocol'] == 1 and h['pid'] > 1 and h['store'] == store, h
try: c.request({'op': 'hello', 'protocol': 2})
except ReplyError as e: assert e.error['kind'] == 'protocol' and e.error['todo'], e.error
else: assert False
try: c.recv()
except ProtocolError: pass
else: assert False"
	assert_success
}

@test "a bad request is an error of kind usage, and the connection goes on" {
	ntr sessions
	run python "
bad = [{'op': 'nothing'}, {'op': 1}, {}, {'op': 'run'}, {'op': 'run', 'session': 'a'}, {'op': 'run', 'session': 5, 'argv': ['x']},
  {'op': 'new'}, {'op': 'new', 'name': 'a/b'}, {'op': 'new', 'name': '.a'}, {'op': 'new', 'name': ''}, {'op': 'new', 'name': 'a' * 300},
  {'op': 'new', 'name': 'a\x00b'}, {'op': 'new', 'name': {'base64': '/w=='}}, {'op': 'new', 'name': 'a', 'wsroot': '/'},
  {'op': 'new', 'name': 'a', 'wsroot': 'w'}, {'op': 'new', 'name': 'a', 'wsroot': '/a/../b'}, {'op': 'new', 'name': 'a', 'wsroot': '//'},
  {'op': 'new', 'name': 'a', 'durability': 'none'}, {'op': 'new', 'name': 'a', 'from_dir': '/'},
  {'op': 'new', 'name': 'a', 'from_rev': 'x', 'from_tar': 'y'}, {'op': 'new', 'name': 'a', 'from_rev': 'x', 'wsroot': '/w'},
  {'op': 'fork', 'name': 'b'}, {'op': 'rollback', 'session': 'a'}, {'op': 'rollback', 'session': 'a', 'steps': 0},
  {'op': 'rollback', 'session': 'a', 'steps': 1, 'rev': 'x'}, {'op': 'rollback', 'session': 'a', 'steps': '1'}, {'op': 'log'},
  {'op': 'log', 'session': 'a', 'n': -1}, {'op': 'diff', 'session': 'a'}, {'op': 'status'}, {'op': 'rm'},
  {'op': 'rename', 'old': 'a', 'new': '../b'}, {'op': 'ls'}, {'op': 'cat', 'session': 'a', 'path': 'x'}, {'op': 'ps'}]
with Client(store) as c:
    for msg in bad:
        try: c.request(msg)
        except ReplyError as e: assert e.error['kind'] == 'usage' and e.error['errno'] == 22, (msg, e.error)
        else: assert False, msg
    calls = [{'argv': ['x'], 'script': 'x'}, {}, {'argv': []}, {'argv': 'x'}, {'argv': [1]}, {'argv': ['a\x00']}, {'script': 'a\x00b'},
      {'argv': ['x'], 'set_env': ['novalue']}, {'argv': ['x'], 'timeout': 0}, {'argv': ['x'], 'timeout': -1}, {'argv': ['x'], 'env': 'A=b'},
      {'argv': ['x'], 'budget': 0, 'capture': True}, {'argv': ['x'], 'rm': 1}, {'argv': ['x'], 'cwd': 7}]
    for more in calls:
        fds = [0] if more.get('capture') else [0, 1, 2]
        try: c.request({'op': 'run', 'session': 'a', **more}, fds)
        except ReplyError as e: assert e.error['kind'] == 'usage', (more, e.error)
        else: assert False, more
    for fds, more in (([0], {}), ([0, 1], {}), ([0, 1, 2], {'capture': True})):
        try: c.request({'op': 'run', 'session': 'a', 'argv': ['true'], **more}, fds)
        except ReplyError as e: assert e.error['kind'] == 'usage', e.error
        else: assert False
    assert c.rows({'op': 'sessions'}) == []"
	assert_success
}

@test "names that are not there are errors of kind not-found" {
	ntr new a
	run python "
with Client(store) as c:
    for msg in ({'op': 'fork', 'source': 'b', 'name': 'c'}, {'op': 'log', 'session': 'b'}, {'op': 'show', 'session': 'a', 'rev': 'abcdef0'},
      {'op': 'status', 'session': 'b'}, {'op': 'rm', 'name': 'b'}, {'op': 'rename', 'old': 'b', 'new': 'c'}, {'op': 'ps', 'session': 'b'},
      {'op': 'commit', 'session': 'b'}, {'op': 'rollback', 'session': 'b', 'steps': 1}, {'op': 'rollback', 'session': 'a', 'steps': 1},
      {'op': 'ls', 'session': 'a', 'path': 'nothing'}):
        try: c.request(msg)
        except ReplyError as e: assert e.error['kind'] == 'not-found' and e.error['why'], (msg, e.error)
        else: assert False, msg
    try: c.request({'op': 'new', 'name': 'a'})
    except ReplyError as e: assert e.error['kind'] == 'exists', e.error
    else: assert False"
	assert_success
}

# ---- frames

@test "a broken frame ends its connection with an error, and no other one" {
	ntr sessions
	run python "
def refused(data, close=False):
    with Client(store, hello=False) as c:
        c.send_raw(data)
        if close: c.sock.shutdown(socket.SHUT_WR)
        m = c.recv()
        assert m['error']['kind'] == 'protocol', m
        try: c.recv()
        except (ProtocolError, ConnectionResetError): return
        assert False
other = Client(store)
frame = lambda t: struct.pack('<I', len(t)) + t
for text in (b'', b'{', b'[]', b'7', b'null', b'\"x\"', b'\xff', b'{} ,', b'{\"op\":\"hello\",\"op\":\"hello\"}', b'{\"op\":\"hello\",\"fds\":2}'):
    refused(frame(text))
for n in ((64 << 20) + 1, 0x7fffffff, 0xffffffff): refused(struct.pack('<I', n))
whole = frame(b'{\"op\":\"hello\",\"protocol\":1}')
for cut in (1, 3, 4, 5, len(whole) - 1): refused(whole[:cut], True)
refused(b'GET / HTTP/1.1\r\nHost: x\r\n\r\n')
for i in range(200):
    s = Client(store, hello=False)
    s.send_raw(os.urandom(i + 1))
    s.close()
assert other.rows({'op': 'sessions'}) == []"
	assert_success
}

@test "another user is refused" {
	[[ $EUID -eq 0 ]] || skip "needs root"
	ntr sessions
	chmod 755 "$TEST_DIR" "$NTR_STORE"
	run python "
path = socket_path(store)
def attempt():
    if os.fork() == 0:
        os.setgid(65534); os.setuid(65534)
        s = socket.socket(socket.AF_UNIX)
        try: s.connect(path)
        except PermissionError: os._exit(10)
        c = Client.__new__(Client); c.sock, c.fds = s, []
        m = c.recv()
        os._exit(20 if m['error']['kind'] == 'protocol' else 30)
    return os.waitstatus_to_exitcode(os.wait()[1])
assert attempt() == 10
for d in (os.environ['XDG_RUNTIME_DIR'], os.path.dirname(path)): os.chmod(d, 0o755)
assert attempt() == 10
os.chmod(path, 0o777)
assert attempt() == 20"
	assert_success
}

# ---- many clients

@test "silent clients block nobody, two hundred clients work at once" {
	ntr new a
	run python "
silent = [Client(store, hello=False) for _ in range(100)]
failed = []
def work(i):
    try:
        with Client(store) as c:
            for _ in range(5):
                assert len(c.rows({'op': 'log', 'session': 'a'})) == 1
                c.request({'op': 'fork', 'source': 'a', 'name': 'f%d-%d' % (i, _)})
    except BaseException as e: failed.append(repr(e))
threads = [threading.Thread(target=work, args=(i,)) for i in range(200)]
for t in threads: t.start()
for t in threads: t.join()
assert not failed, failed[:3]
with Client(store) as c:
    assert len(c.rows({'op': 'sessions'})) == 1001
    st = c.request({'op': 'daemon-status'})
    assert st['connections'] == 101 and st['rss'] > 1 << 20 and st['requests'] > 2000, st"
	assert_success
}

@test "clients that come at once start one daemon" {
	local i pids=()
	for i in {1..12}; do
		ntr new "s$i" >"out.$i" 2>&1 &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i" || { cat out.*; false; }; done
	run ntr sessions
	assert_success
	[[ $(ntr sessions --json | wc -l) -eq 12 ]]
	[[ $(ntr_processes | grep -c ntrd) -eq 1 ]]
}

# ---- the daemon's life

@test "it ends when told to, and takes its socket along" {
	ntr new a
	local pid path
	pid=$(daemon_pid)
	path=$(client path)
	[[ -S $path && -L $NTR_STORE/socket && $(stat -c %a "$path") == 600 ]]
	kill -TERM "$pid"
	wait_gone "$pid"
	[[ ! -e $path && ! -L $NTR_STORE/socket ]]
	run ntr log -s a
	assert_success
	[[ $(daemon_pid) != "$pid" ]]
}

@test "a dead daemon's socket is no obstacle" {
	ntr new a
	local pid
	pid=$(daemon_pid)
	kill -KILL "$pid"
	wait_gone "$pid"
	[[ -S $(client path) ]]
	run ntr log -s a
	assert_success
}

@test "it ends when nobody needs it" {
	local ntrd=$NTR_BIN/ntrd pid
	[[ -x $ntrd ]] || skip "ntrd is not beside ntr"
	python "assert start('$ntrd', store, '--idle', '1') == {'ok': True}"
	pid=$(daemon_pid)
	python "
c = Client(store)
time.sleep(2.5)
c.rows({'op': 'sessions'})"
	kill -0 "$pid"
	wait_gone "$pid"
	[[ ! -L $NTR_STORE/socket ]]
	grep -q "nothing to do" "$NTR_STORE/ntrd.log"
}

@test "a second daemon leaves the store to the first" {
	local ntrd=$NTR_BIN/ntrd pid
	[[ -x $ntrd ]] || skip "ntrd is not beside ntr"
	ntr new a
	pid=$(daemon_pid)
	python "assert start('$ntrd', store) == {'ok': True}"
	[[ $(daemon_pid) == "$pid" ]]
	[[ $(ntr_processes | grep -c ntrd) -eq 1 ]]
}

@test "what prevents a start is told on the ready descriptor" {
	local ntrd=$NTR_BIN/ntrd
	[[ -x $ntrd ]] || skip "ntrd is not beside ntr"
	mkdir other
	touch other/precious
	python "
m = start('$ntrd', '$PWD/other')
assert m['error']['what'] and m['error']['why'] and m['error']['errno'] > 0, m"
	[[ $(ls other) == precious ]]
}

@test "it is nobody's child, and holds nothing of its starter" {
	ntr new a
	local pid
	pid=$(daemon_pid)
	[[ $(readlink "/proc/$pid/cwd") == / ]]
	[[ $(readlink "/proc/$pid/fd/0") == /dev/null && $(readlink "/proc/$pid/fd/1") == /dev/null ]]
	[[ $(readlink "/proc/$pid/fd/2") == "$NTR_STORE/ntrd.log" ]]
	[[ $(cut -d' ' -f6 "/proc/$pid/stat") != $(cut -d' ' -f6 /proc/$$/stat) ]]
	run bash -c "exec 7>held; ntr daemon stop; ntr sessions; readlink /proc/\$(ntr daemon status --json | json '[\"pid\"]')/fd/* | grep held"
	assert_failure
}

@test "its log begins anew above a mebibyte" {
	ntr new a
	ntr daemon stop
	head -c 1100000 /dev/zero | tr '\0' 'x' >>"$NTR_STORE/ntrd.log"
	ntr sessions
	[[ $(stat -c %s "$NTR_STORE/ntrd.log") -lt 10000 && $(stat -c %s "$NTR_STORE/ntrd.log.1") -gt 1048576 ]]
}

@test "a client with another runtime directory finds it" {
	ntr new a
	local pid
	pid=$(daemon_pid)
	mkdir -m 700 "$TEST_DIR/run2"
	[[ $(XDG_RUNTIME_DIR=$TEST_DIR/run2 daemon_pid) == "$pid" ]]
	[[ $(env -u XDG_RUNTIME_DIR ntr daemon status --json | json '["pid"]') == "$pid" ]]
}

# ---- calls

@test "captured output: text, other bytes, a budget" {
	ntr sessions
	run python "
with Client(store) as c:
    r = c.run('a', script='echo hi; echo err >&2; exit 3')
    assert (r['stdout'], r['stderr'], r['exit_code'], r['truncated'], r['commit']) == ('hi\n', 'err\n', 3, False, None), r
    r = c.run('a', script='printf \"\\\\377\"')
    assert r['stdout'] == {'base64': '/w=='}, r
    r = c.run('a', script='seq 100000', budget=1000)
    assert r['truncated'] and len(r['stdout']) == 1000, r
    r = c.run('a', script='head -c 30000000 /dev/zero')
    assert r['truncated'] and isinstance(r['stdout'], dict), r['truncated']
    r = c.run('a', script='sleep 10', timeout=0.2)
    assert (r['timed_out'], r['exit_code'], r['timeout']) == (True, 124, 0.2), r
    r = c.run('a', argv=['/nonexistent'])
    assert r['exit_code'] == 127, r"
	assert_success
}

@test "a call in a throw-away fork leaves nothing" {
	ntr run -s a -- touch kept
	run python "
with Client(store) as c:
    r = c.run('a', script='ls; touch gone', rm=True)
    assert r['stdout'] == 'kept\n' and r['commit'] is None, r
    r = c.run('a', script='ls')
    assert r['stdout'] == 'kept\n', r
    r = c.run('new', script='pwd', rm=True)
    assert r['stdout'] == '/workspace\n', r
    assert [s['name'] for s in c.rows({'op': 'sessions'})] == ['a']"
	assert_success
}

@test "a call that would wait for itself is refused" {
	ntr sessions
	run python "
def refused(msg, fds=()):
    try: Client(store).request(msg, fds)
    except ReplyError as e: assert e.error['errno'] == 35 and e.error['kind'] == 'busy', e.error
    else: assert False, msg
with Client(store) as c:
    c.run('a', argv=['true'])
    refused({'op': 'run', 'session': 'a', 'argv': ['true'], 'inside': 'a'}, [0, 1, 2])
    for op in ('commit', 'discard', 'rollback'): refused({'op': op, 'session': 'a', 'steps': 1, 'inside': 'a'})
    refused({'op': 'rm', 'name': 'a', 'inside': 'a'})
    null = os.open('/dev/null', os.O_RDWR)
    refused({'op': 'put', 'session': 'a', 'path': 'f', 'inside': 'a'}, [null])
    refused({'op': 'mount', 'session': 'a', 'where': '/mnt', 'inside': 'a'}, [null])
    refused({'op': 'tool', 'session': 'a', 'name': 'file_write', 'args': {'path': 'f', 'content': ''}, 'inside': 'a'})
    # a waits for b, so b must not wait for a
    c.send({'op': 'run', 'session': 'b', 'script': 'touch ready; exec sleep 20', 'inside': 'a'}, [0, 1, 2])
    assert c.recv()['event'] == 'started'
    refused({'op': 'run', 'session': 'a', 'argv': ['true'], 'inside': 'b'}, [0, 1, 2])
    for op in ('commit', 'discard', 'rollback'): refused({'op': op, 'session': 'a', 'steps': 1, 'inside': 'b'})
    refused({'op': 'put', 'session': 'a', 'path': 'f', 'inside': 'b'}, [null])
    refused({'op': 'cache-set', 'session': 'a', 'key': 'k', 'value': 1, 'inside': 'b'})
    refused({'op': 'cache-rm', 'session': 'a', 'key': 'k', 'inside': 'b'})
    await_file('b', 'ready')
    c.send({'op': 'signal', 'sig': 15})
    m = c.recv()
    assert m.get('signal') == 15, m"
	assert_success
}

@test "signals reach the call, also when it waits in the queue" {
	ntr sessions
	run python "
with Client(store) as c, Client(store) as d:
    c.send({'op': 'run', 'session': 'a', 'script': 'trap \"echo usr >got; exit 9\" USR1; touch ready; while :; do sleep 0.05; done'}, [0, 1, 2])
    c.recv()
    await_file('a', 'ready')
    d.send({'op': 'run', 'session': 'a', 'argv': ['true']}, [0, 1, 2])
    d.recv()
    time.sleep(0.2)
    d.send({'op': 'signal', 'sig': 2})
    m = d.recv()
    assert m['error']['errno'] == 4, m
    c.send({'op': 'signal', 'sig': 10})
    m = c.recv()
    assert m['exit_code'] == 9 and m['signal'] == 0 and m['commit'], m"
	assert_success
	run ntr run -s a -- cat got
	assert_output usr
}

@test "when the client goes away its call gets SIGHUP, then SIGKILL" {
	ntr sessions
	run python "
c = Client(store)
c.send({'op': 'run', 'session': 'a', 'script': 'trap \"echo hup >hup; exit 0\" HUP; touch ready; while :; do sleep 0.05; done'}, [0, 1, 2])
c.recv()
await_file('a', 'ready')
c.close()
with Client(store) as d:
    r = d.run('a', script='cat hup')
    assert r['stdout'] == 'hup\n', r
c = Client(store)
c.send({'op': 'run', 'session': 'a', 'script': 'trap \"\" HUP; touch stubborn; while :; do sleep 0.05; done'}, [0, 1, 2])
c.recv()
await_file('a', 'stubborn')
began = time.time()
c.close()
with Client(store) as d:
    r = d.run('a', script='ls stubborn')
    assert r['stdout'] == 'stubborn\n' and 1 < time.time() - began < 20, (r, time.time() - began)
    log = d.rows({'op': 'log', 'session': 'a'})
    assert log[0]['exit_code'] == 137, log[0]"
	assert_success
}

@test "a daemon that is stopped during a call keeps what it wrote" {
	ntr run -s a -c 'echo mine >file; touch ready; sleep 30' &
	local call=$! i
	for i in {1..100}; do
		ntr ps -s a 2>/dev/null | grep -q 'sleep 30' && break
		sleep 0.1
	done
	ntr daemon stop
	wait "$call" || true
	run ntr run -s a -- cat file
	assert_output mine
}
