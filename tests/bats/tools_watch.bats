# What watches files: inotify by way of inotifywait, node's fs.watch and watchFile, chokidar, tail; in one call against a plain
# directory, and from call to call, where a commit comes between a change and the next.
load common
load tools

setup() { ntr_setup; }
teardown() { ntr_teardown; }

changes='echo more >>d/f; echo v2 >d/t && mv d/t d/g; chmod 600 d/h; rm d/i; mv d/j d/sub/j; ln d/f d/k; mkdir d/m; touch d/m/n; rm -r d/m; truncate -s 1 d/sub/l; ln -s f d/s; touch d/f; cat d/f >/dev/null; setfattr -n user.a -v 1 d/f; exec 3>>d/f; echo held >&3; rm d/f; exec 3>&-'
make_watched='mkdir -p d/sub; for f in f g h i j sub/l; do echo 1 >d/$f; done'

# watching PID: shell code that waits until the process has its watches.
watching() { echo "for i in {1..200}; do grep -qs '^inotify' /proc/$1/fdinfo/* && break; sleep 0.02; done; sleep 0.3"; }

@test "inotifywait: every event of changes to committed files, in order, as in a plain directory" {
	need inotifywait setfattr
	both "$make_watched"
	# (what a directory made while it is watched gets is a race of the watcher's own)
	both "rm -f $PWD/log; inotifywait -q -m -r --exclude 'd/m/' --format '%e %w%f' -o $PWD/log d & w=\$!; $(watching '$w'); $changes; sleep 0.3; kill \$w; wait 2>/dev/null; grep -v d/m $PWD/log"
}

@test "a watcher in the background sees what later calls, put and the host side of a mount change; commits and folds do not stir it" {
	need inotifywait
	call "$make_watched; echo x >top"
	local log=$TEST_DIR/events
	touch "$log" && chmod 666 "$log"
	ntr run -c "inotifywait -q -m -r -e modify,create,delete,move,close_write --format '%e %w%f' -o '$log' d top </dev/null >/dev/null 2>&1 & $(watching '$!')"
	ntr run -c 'echo one >>d/f'
	ntr run -c 'echo v2 >d/new; mv d/new d/g'
	ntr commit >/dev/null 2>&1 || true
	echo put >from && ntr put from d/h
	mkdir m
	ntr mount default m
	echo host >m/d/sub/l
	touch m/d/byhost
	ntr umount m
	for i in {1..200}; do echo "touch d/sub/many$i"; done >many
	ntr run -c "$(tr '\n' ';' <many)"
	sleep 0.5 # a fold would be due; it waits for the watcher
	ntr run -c 'rm d/i; echo end >>top'
	for _ in {1..50}; do grep -q 'CLOSE.*top' "$log" && break; sleep 0.1; done
	grep -v sub/many "$log" | awk '!seen[$0]++' >got
	assert_equal "$(grep -c 'CREATE d/sub/many' "$log")" 200
	for e in 'MODIFY d/f' 'CREATE d/new' 'MOVED_FROM d/new' 'MOVED_TO d/g' 'DELETE d/i' 'MODIFY top' 'CREATE d/byhost' 'MODIFY d/sub/l'; do grep -qx "$e" got || { echo "no $e in" && cat got && false; }; done
	grep -qE ' d/h$' got
	# A rollback ends who watches; whoever watches next sees the new state at once.
	ntr rollback --steps 1 >/dev/null
	run ntr ps
	refute_output --partial inotifywait
	run ntr run -c 'cat d/i top'
	assert_output $'1\nx'
}

@test "node's fs.watch, recursive as well, watchFile, and tail -F" {
	need node
	cat >watch.js <<-'P'
		const fs = require("fs"), { execSync } = require("child_process"), seen = new Set()
		const note = k => (e, f) => seen.add(k + " " + (typeof e === "string" ? e + " " + f : "changed"))
		const w = [fs.watch("d", note("dir")), fs.watch("d/f", note("file")), fs.watch("d", { recursive: true }, note("all"))]
		fs.watchFile("d/h", { interval: 50 }, (a, b) => seen.add("polled " + (a.mtimeMs > b.mtimeMs) + a.size))
		setTimeout(() => execSync("echo more >>d/f; echo v >d/t; mv d/t d/g; echo changed >d/h; rm d/i; echo l >>d/sub/l"), 300)
		setTimeout(() => { w.forEach(x => x.close()); fs.unwatchFile("d/h"); console.log([...seen].sort().join("\n")) }, 1500)
	P
	both "$make_watched"
	both "node $PWD/watch.js"
	# (on overlayfs tail polls, as on every filesystem that it does not know to be local)
	both "tail -n +1 -s 0.05 --max-unchanged-stats=1 -F d/f d/g >$PWD/log 2>&1 & w=\$!; sleep 0.4; echo appended >>d/f; echo again >>d/f; echo other >d/t; mv d/t d/g; sleep 0.6; kill \$w; wait 2>/dev/null; sort $PWD/log"
}

@test "chokidar, a development server's reload, a test runner's watch" {
	long
	need node npm
	export npm_config_audit=false npm_config_fund=false npm_config_cache=$TEST_DIR/npm-cache
	reach "npm's registry" npm view is-number version
	npm install --silent --prefix "$TEST_DIR/pm" chokidar@4.0.3 nodemon@3.1.10 >pm.log 2>&1 || { cat pm.log; false; }
	cat >watch.mjs <<-P
		import { execSync } from "child_process"
		import { watch } from "$TEST_DIR/pm/node_modules/chokidar/esm/index.js"
		const seen = [], w = watch(".", { usePolling: process.argv[2] === "poll", interval: 50, ignored: f => /watch|pid/.test(f), awaitWriteFinish: false })
		w.on("ready", () => {
		    w.on("all", (e, f) => seen.push(e + " " + f))
		    setTimeout(() => execSync("echo more >>d/f; echo changed-longer >d/h; rm d/i; mkdir d/new; echo x >d/new/x; mv d/j d/jj"), 300)
		    setTimeout(async () => { await w.close(); console.log([...new Set(seen)].sort().join("\n")) }, 2500)
		})
	P
	both "$make_watched"
	both "node $PWD/watch.mjs"
	both "rm -r d; $make_watched"
	both "node $PWD/watch.mjs poll"
	# nodemon in the background restarts its program for a change that a later call makes.
	ntr run -c "echo 'require(\"fs\").appendFileSync(\"$PWD/starts\", \"start\\n\")' >app.js; $TEST_DIR/pm/node_modules/.bin/nodemon -q app.js </dev/null >/dev/null 2>&1 & for i in {1..100}; do [ -s $PWD/starts ] && break; sleep 0.1; done; sleep 1"
	ntr run -c 'echo "// changed" >>app.js'
	for _ in {1..50}; do [ "$(wc -l <starts)" -ge 2 ] && break; sleep 0.1; done
	ntr run -c 'echo "// again" >app.new; cat app.js >>app.new; mv app.new app.js'
	for _ in {1..50}; do [ "$(wc -l <starts)" -ge 3 ] && break; sleep 0.1; done
	[ "$(wc -l <starts)" -ge 3 ]
	ntr stop
}
