# Databases and mapped columns: many processes, shared memory, journals, over calls with commits while they run, folds, forks and
# rollbacks. A commit made while a server runs is one point in time: what starts from it recovers as after a power cut.
load common
load tools

setup() { ntr_setup; }
teardown() { ntr_teardown; }

# PostgreSQL refuses root: in a root's session it runs as the ordinary user of the tests.
postgres_setup() {
	local d
	need setpriv
	for d in /usr/lib/postgresql/*/bin; do [ -x "$d/initdb" ] && [ -x "$d/pgbench" ] && pg=$d; done
	[ -n "${pg:-}" ] || skip "PostgreSQL is not installed"
	as=
	if [ "$(id -u)" -eq 0 ]; then
		as="setpriv --reuid=65534 --regid=65534 --clear-groups "
		ntr run -c 'chown 65534:65534 .'
		chmod 711 "$TEST_DIR" "$TEST_DIR/work"
	fi
	export PGHOST=/workspace PGDATABASE=postgres PGUSER=tester PGDATA=/workspace/data LC_ALL=C
	export PATH=$pg:$PATH
}
pg() { ntr run ${session:+-s "$session"} -c "set -e; cd /workspace; $1"; }
server() { pg "${as}pg_ctl -s -w -t 120 -l log -o '-c listen_addresses= -c unix_socket_directories=/workspace -c shared_buffers=16MB -c fsync=${fsync:-on}' $1 </dev/null"; }
sql() { pg "psql -XAtq -v ON_ERROR_STOP=1 <<<\"$1\""; }
# The books of pgbench balance at every point in time.
books='select count(*) from (select sum(abalance) s from pgbench_accounts union select sum(tbalance) from pgbench_tellers union select sum(bbalance) from pgbench_branches union select coalesce(sum(delta), 0) from pgbench_history) b'
checks() {
	assert_equal "$(sql "$books")" 1
	pg 'pg_amcheck -U tester --install-missing --heapallindexed postgres'
}

@test "PostgreSQL: initdb, pgbench, restart after a fold, a crash" {
	long
	postgres_setup
	pg "${as}initdb -U tester -A trust --no-instructions >/dev/null"
	settle
	server start
	pg 'pgbench -q -i -s 2 2>/dev/null; pgbench -n -c 4 -j 2 -t 150 >/dev/null'
	checks
	server stop
	settle
	server start
	assert_equal "$(sql 'select count(*) from pgbench_history')" 600
	# Calls beside a running server; each is a commit of what it does.
	pg 'pgbench -n -c 4 -t 100 >/dev/null'
	sql 'create table big as select i, repeat(md5(i::text), 20) t from generate_series(1, 20000) i; create index on big (t); vacuum full big; reindex table big; cluster pgbench_accounts using pgbench_accounts_pkey'
	checks
	server 'stop -m immediate'
	settle
	server start
	assert_equal "$(sql 'select count(*) from pgbench_history')" 1000
	checks
	pg 'pg_dump -Fd -j 2 -f /tmp/dump.$$ && pg_restore -l /tmp/dump.$$ | grep -c TABLE; rm -r /tmp/dump.$$' >out
	[ "$(cat out)" -ge 5 ]
	server stop
	pg "${as}pg_checksums -c >/dev/null 2>&1 || ${as}pg_checksums --enable >/dev/null; ${as}pg_checksums -c | grep -c 'Bad checksums:  0'"
	settle
	pg "${as}pg_checksums -c | grep -c 'Bad checksums:  0'"
	ntr stop
	run ntr fsck
	assert_success
}

@test "PostgreSQL: commits while pgbench runs; each of them starts, recovered, its books balanced" {
	long
	postgres_setup
	local i n last=0
	pg "${as}initdb -U tester -A trust --no-instructions -k >/dev/null"
	server start
	pg 'pgbench -q -i -s 2 2>/dev/null'
	pg 'pgbench -n -c 4 -j 2 -T 12 </dev/null >/dev/null 2>&1 &'
	for i in 1 2 3 4 5; do
		sleep 1.5
		n=$(ntr run -c "cd /workspace; psql -XAtqc 'select count(*) from pgbench_history'")
		ntr fork default "f$i"
	done
	server 'stop -m immediate'
	[ "$n" -gt 100 ]
	for i in 1 2 3 4 5; do
		session=f$i
		pg 'test -e data/postmaster.pid && rm data/postmaster.pid'
		server start
		n=$(sql 'select count(*) from pgbench_history')
		[ "$n" -ge "$last" ] # later commits hold no less
		last=$n
		checks
		server stop
		pg "${as}pg_checksums -c | grep -c 'Bad checksums:  0'"
		ntr stop -s "$session"
	done
	session=
	ntr rollback --steps 2
	server start
	checks
	server stop
}

@test "sqlite: journals of every kind, killed writers, commits meanwhile; a fork is sound" {
	need sqlite3
	local mode modes='wal delete' rounds=1 i
	[ -z "${NTR_LONG:-}" ] || { rounds=6 && modes='wal delete truncate persist'; }
	cat >write.py <<-'P'
		import os, sqlite3, sys
		db = sqlite3.connect("db", timeout=60, isolation_level=None)
		db.execute("pragma synchronous=off")
		i = 0
		while i < int(sys.argv[2]):
		    db.execute("begin immediate")
		    db.execute("update sum set n = n + ?", (i,))
		    db.execute("insert into item values (?, ?, ?)", (sys.argv[1], i, os.urandom(300)))
		    db.execute("commit")
		    i += 1
	P
	cat >check.py <<-'P'
		import sqlite3
		db = sqlite3.connect("db", timeout=60)
		print(db.execute("pragma integrity_check").fetchone()[0], db.execute("select (select n from sum) = (select sum(i) from item)").fetchone()[0])
	P
	for mode in $modes; do
		session=$mode
		ntr new "$session" >/dev/null
		ntr run -s "$session" -c "sqlite3 db 'pragma page_size=1024; pragma journal_mode=$mode; create table sum(n); insert into sum values(0); create table item(who, i, data); create index x on item(data)' >/dev/null"
		for ((i = 0; i < rounds; i++)); do
			ntr stop -s "$session" >/dev/null
			ntr run -s "$session" -c "for k in 1 2 3; do /usr/bin/python3 $PWD/write.py \$k 100000 </dev/null >/dev/null 2>&1 & echo \$! >pid.\$k; done; sleep 0.5"
			ntr run -s "$session" -c 'sleep 0.3; sqlite3 -cmd ".timeout 60000" db "select count(*) > 10 from item"' >out
			assert_equal "$(cat out)" 1
			ntr fork "$session" "$session.f$i" >/dev/null
			ntr run -s "$session" -c 'kill -9 $(cat pid.?); sleep 0.1'
			run ntr run -s "$session.f$i" -- /usr/bin/python3 "$PWD/check.py"
			assert_output 'ok 1'
			run ntr run -s "$session" -- /usr/bin/python3 "$PWD/check.py"
			assert_output 'ok 1'
		done
	done
}

@test "parquet: written, mapped, replaced while it is mapped, as a data set" {
	long
	/usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null || skip "Debian's python3-venv is not installed"
	/usr/bin/python3 -m venv "$TEST_DIR/env"
	reach "pip's index" "$TEST_DIR/env/bin/pip" -q --disable-pip-version-check install pyarrow numpy
	cat >write.py <<-'P'
		import os, sys
		import numpy as np, pyarrow as pa, pyarrow.dataset as ds, pyarrow.feather as feather, pyarrow.parquet as pq
		n = 300000
		r = np.random.default_rng(int(sys.argv[1]))
		t = pa.table({"k": np.arange(n) % 7, "x": r.integers(0, 1 << 40, n), "s": pa.array([str(i % 1000) for i in range(n)])})
		pq.write_table(t, "new.parquet", row_group_size=20000, compression="zstd")
		os.replace("new.parquet", "t.parquet")
		with pa.OSFile("t.arrow", "wb") as f, pa.ipc.new_file(f, t.schema) as w: w.write_table(t, max_chunksize=10000)
		ds.write_dataset(t, "set", format="parquet", partitioning=["k"], existing_data_behavior="delete_matching")
		with pq.ParquetWriter("many.parquet", t.schema) as w:
		    for i in range(5): w.write_table(t.slice(i * 1000, 1000))
		with pa.create_memory_map("mapped", 1 << 20) as m: m.write(b"m" * (1 << 20)); m.seek(5); m.write(sys.argv[1].encode())
	P
	cat >read.py <<-'P'
		import hashlib, sys
		import pyarrow as pa, pyarrow.compute as pc, pyarrow.dataset as ds, pyarrow.parquet as pq
		t = pq.read_table("t.parquet", memory_map=True)
		print(t.num_rows, pc.sum(t["x"]), pq.read_table("t.parquet", memory_map=False).equals(t))
		with pa.memory_map("t.arrow") as m:
		    a = pa.ipc.open_file(m).read_all(); print(a.equals(t), pa.total_allocated_bytes() >= 0)
		    d = ds.dataset("set", partitioning=["k"]); print(d.count_rows(), pc.sum(d.to_table(columns=["x"])["x"]))
		    print(pq.ParquetFile("many.parquet", memory_map=True).metadata.num_row_groups, hashlib.md5(open("mapped", "rb").read()).hexdigest())
		    if len(sys.argv) > 1:
		        import subprocess
		        held = pq.read_table("t.parquet", memory_map=True)
		        subprocess.run([sys.executable, sys.argv[1], "9"], check=True, env={"PATH": "/usr/bin:/bin"})
		        print(pc.sum(held["x"]), pc.sum(pq.read_table("t.parquet", memory_map=True)["x"]))
		with pa.memory_map("mapped", "r+") as m: m.seek(100); m.write(b"written"); m.flush()
	P
	local py=$TEST_DIR/env/bin/python
	both "$py $PWD/write.py 1"
	both "$py $PWD/read.py"
	both "$py $PWD/read.py; $py $PWD/write.py 2; $py $PWD/read.py"
	both "$py $PWD/read.py $PWD/write.py"
	both "$py $PWD/read.py; tail -c +101 mapped | head -c 7; rm -r set; ls"
	same_trees .
	ntr rollback --steps 1
	run ntr run -- "$py" "$PWD/read.py"
	assert_success
}
