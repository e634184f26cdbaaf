# Package managers with their registries: installs, changes and removals over calls with a commit after each, and what they leave
# compared with the same in a plain directory. NTR_LONG=1 only: they need the network and minutes.
load common
load tools

setup() {
	ntr_setup
	long
	export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_loglevel=error CI=1
	export npm_config_cache=$TEST_DIR/npm-cache COREPACK_ENABLE_DOWNLOAD_PROMPT=0 ADBLOCK=1 DISABLE_OPENCOLLECTIVE=1
}
teardown() {
	chmod -R u+rwX "$TEST_DIR" 2>/dev/null || true # Go's modules are read-only
	ntr_teardown
}

need_npm() {
	need node npm
	reach "npm's registry" npm view is-number version
}

# A package manager that npm installs, outside of the workspace: its programs are in $TEST_DIR/pm/node_modules/.bin.
from_npm() {
	npm install --silent --prefix "$TEST_DIR/pm" "$@" >pm.log 2>&1 || { cat pm.log; return 1; }
	export PATH=$TEST_DIR/pm/node_modules/.bin:$PATH
}

make_app() {
	mkdir -p app/src
	cat >app/package.json <<-'P'
		{"name":"app","version":"1.0.0","private":true,"type":"module","scripts":{"build":"vite build","t":"tsc --version"},
		 "dependencies":{"react":"18.3.1","react-dom":"18.3.1","lodash":"4.17.21"},
		 "devDependencies":{"vite":"7.1.7","typescript":"5.4.5","chalk":"5.3.0","semver":"7.6.0"}}
	P
	echo '<div id="root"></div><script type="module" src="/src/main.js"></script>' >app/index.html
	printf 'import { createElement } from "react"\nimport { createRoot } from "react-dom/client"\ncreateRoot(document.getElementById("root")).render(createElement("p", null, "hello"))\n' >app/src/main.js
}

@test "npm: install, a bundler's build, update, dedupe, ci, uninstall, removal of node_modules" {
	need_npm
	make_app
	both "cp -r $PWD/app . && cd app && npm install --silent >/dev/null && npm ls --all | wc -l"
	same_trees app
	both 'npm run --silent build >/dev/null 2>&1; ls dist dist/assets; npm run --silent t; node -e "console.log(require(\"lodash\").VERSION)"'
	both 'npm install --silent lodash@4.17.20 semver@7.5.4 >/dev/null; npm ls --depth 0; npm dedupe --silent >/dev/null; npm prune --silent >/dev/null; npm ls --all | tail -n +2 | md5sum'
	same_trees app
	both 'npm uninstall --silent chalk typescript >/dev/null; ls node_modules node_modules/.bin | md5sum; npm run --silent build >/dev/null 2>&1; cat dist/assets/* | md5sum'
	both 'npm ci --silent >/dev/null; npm ls --all | tail -n +2 | md5sum; npm run --silent build >/dev/null 2>&1; cat dist/assets/* | md5sum'
	same_trees app
	ntr fork default f
	both 'rm -rf node_modules; ls -A; npm install --silent --offline >/dev/null; npm ls --all | tail -n +2 | md5sum'
	same_trees app
	both 'mv node_modules old; npm install --silent --offline >/dev/null; diff -r node_modules old && rm -rf old; ls -A'
	ntr run -s f -c 'npm run build >/dev/null 2>&1; cat dist/assets/* | md5sum' >forked
	(cd plain/app && npm run build >/dev/null 2>&1; cat dist/assets/* | md5sum) | diff - forked
}

@test "npm: links, workspaces, packs, scripts that install, a global prefix in the workspace" {
	need_npm
	mkdir -p mono/packages/{a,b}
	echo '{"name":"mono","private":true,"workspaces":["packages/*"]}' >mono/package.json
	echo '{"name":"a","version":"1.0.0","main":"i.js","bin":{"a":"i.js"},"dependencies":{"is-number":"7.0.0"},"scripts":{"postinstall":"echo ran >installed","prepack":"echo packed >>packed"}}' >mono/packages/a/package.json
	printf '#!/usr/bin/env node\nconsole.log(require("is-number")(5))\n' >mono/packages/a/i.js && chmod +x mono/packages/a/i.js
	echo '{"name":"b","version":"1.0.0","dependencies":{"a":"1.0.0","esbuild":"0.25.0"}}' >mono/packages/b/package.json
	both "cp -r $PWD/mono . && cd mono && npm install --silent >/dev/null; find . -type l | sort | xargs ls -o --time-style=+ | cut -d/ -f2-; cat packages/a/installed; npx --no-install a; npx --no-install esbuild --version"
	same_trees mono
	both 'npm pack --silent -w a; tar -tzf a-1.0.0.tgz; cat packages/a/packed; npm install --silent -g --prefix ./global ./a-1.0.0.tgz >/dev/null; global/bin/a; cp packages/a/i.js packages/a/k.js; ln packages/a/k.js packages/a/j.js; npm pack --silent -w a >/dev/null; tar -tvzf a-1.0.0.tgz | grep -c js; rm packages/a/[jk].js'
	both 'npm link --silent --prefix ./global ./packages/a >/dev/null 2>&1; npm uninstall --silent -g --prefix ./global a >/dev/null; ls -A global/lib/node_modules; rm -r packages/b; npm install --silent >/dev/null; ls -A node_modules'
	same_trees mono
}

@test "pnpm: its store in the workspace (hard links) and outside (copies)" {
	need_npm
	make_app
	from_npm pnpm@10.17.0
	export npm_config_prefer_frozen_lockfile=false npm_config_verify_store_integrity=true
	both "cp -r $PWD/app . && cd app && pnpm install --store-dir ../store >/dev/null && node -e 'import(\"react\").then(r => console.log(r.version))'; [ \$(find node_modules -type f -links +1 | wc -l) -gt 500 ] && echo linked"
	same_trees app '/^node_modules\/(\.modules\.yaml|\.pnpm-workspace-state.*json) /d;/\.bin\//d'
	both 'pnpm run build >/dev/null 2>&1; cat dist/assets/* | md5sum; pnpm add lodash@4.17.20 --store-dir ../store >/dev/null; pnpm ls --depth 0 | tail -n 9'
	# A second project, from a store that is committed.
	both 'mkdir ../second; cp package.json ../second; cd ../second; pnpm install --offline --store-dir ../store >/dev/null 2>&1; pnpm ls --depth 0 | grep -c "@\| "; node -e "import(\"react-dom/server\").then(r => console.log(r.version))"'
	both 'pnpm remove lodash chalk --store-dir ../store >/dev/null; pnpm ls --depth 0 | tail -n 6; pnpm store prune --store-dir ../store >/dev/null 2>&1; pnpm store status --store-dir ../store >/dev/null 2>&1; echo $?'
	both 'rm -rf ../app/node_modules; cd ../app; pnpm install --offline --frozen-lockfile --store-dir ../store >/dev/null 2>&1; echo $?; pnpm run build >/dev/null 2>&1; cat dist/assets/* | md5sum'
	# The store outside: every link is EXDEV, and pnpm copies.
	ntr run -c "cd /workspace; cp -r $PWD/app other; cd other; pnpm install --store-dir $PWD/outside >/dev/null && node -e 'import(\"react\").then(r => console.log(r.version))'" >out
	assert_equal "$(tail -n 1 out)" 18.3.1
	settle
	run ntr run -c 'pnpm run build >/dev/null 2>&1; cat dist/assets/* | md5sum; find node_modules -type f -links +1 | wc -l'
	assert_line --index 0 "$(cat plain/app/dist/assets/* | md5sum)"
	assert_line --index 1 0
	run ntr fsck
	assert_success
}

@test "yarn: classic, and berry with node_modules and with plug'n'play" {
	need_npm
	make_app
	from_npm yarn@1.22.22 @yarnpkg/cli-dist@4.9.2
	local berry="node $TEST_DIR/pm/node_modules/@yarnpkg/cli-dist/bin/yarn.js" yarn="$TEST_DIR/pm/node_modules/yarn/bin/yarn.js"
	export YARN_ENABLE_TELEMETRY=0 YARN_ENABLE_GLOBAL_CACHE=0 YARN_CACHE_FOLDER=$TEST_DIR/yarn-cache
	both "cp -r $PWD/app . && cd app && node $yarn install --silent >/dev/null 2>&1; ls node_modules | wc -l; node $yarn -s run build >/dev/null 2>&1; cat dist/assets/* | md5sum"
	same_trees app 's/^node_modules\/.yarn-integrity .*//'
	both "node $yarn -s add lodash@4.17.20 >/dev/null 2>&1; node $yarn -s remove chalk >/dev/null 2>&1; node $yarn -s check --integrity; ls node_modules | md5sum; rm -rf node_modules; node $yarn -s install --offline --frozen-lockfile >/dev/null 2>&1; ls node_modules | md5sum"
	both "cp -r $PWD/app ../berry; cd ../berry; printf 'nodeLinker: node-modules\nenableImmutableInstalls: false\n' >.yarnrc.yml; touch yarn.lock; YARN_CACHE_FOLDER= $berry install >/dev/null 2>&1; echo \$?; ls node_modules | md5sum; $berry run build >/dev/null 2>&1; cat dist/assets/* | md5sum"
	same_trees berry '/^(node_modules\/.yarn-state.yml|.yarn\/install-state.gz) /d'
	both "$berry remove lodash >/dev/null 2>&1; sed -i s/node-modules/pnp/ .yarnrc.yml; $berry install >/dev/null 2>&1; ls -A | sort; $berry node -e 'console.log(require(\"semver\").valid(\"1.2.3\"))'"
	both "$berry node -e 'console.log(require(\"semver\").valid(\"1.2.4\"))'; $berry run build >/dev/null 2>&1; cat dist/assets/* | md5sum"
	same_trees berry '/^(.pnp.cjs|.yarn\/install-state.gz) /d'
}

@test "bun: install by hard links and by copying" {
	need_npm
	make_app
	from_npm bun@1.2.22
	"$TEST_DIR/pm/node_modules/.bin/bun" --version >/dev/null 2>&1 || skip "bun does not run here"
	export BUN_INSTALL_CACHE_DIR=/workspace/.bun
	ntr run -c "cp -r $PWD/app . && cd app && bun install --silent >/dev/null 2>&1; echo \$?; ls node_modules | wc -l" >one
	settle
	ntr run -c 'bun add lodash@4.17.20 --silent >/dev/null 2>&1; node -p "require(\"lodash\").VERSION"; rm -rf node_modules; bun install --silent --frozen-lockfile; ls node_modules | wc -l; bun -e "console.log(require(\"semver\").valid(\"1.2.3\"))"' >two
	settle
	ntr run -c "rm -rf node_modules; BUN_INSTALL_CACHE_DIR=$PWD/outside bun install --silent; node -p 'require(\"lodash\").VERSION'; npx --no-install vite build >/dev/null 2>&1; ls dist" >three
	assert_equal "$(head -n 1 one)" 0
	assert_equal "$(cat two)" $'4.17.20\n'"$(tail -n 1 one)"$'\n1.2.3'
	assert_equal "$(head -n 1 three)" 4.17.20
	grep -q index.html three
}

@test "pip: installs, another version in place, an editable one, cache, freeze, removal of the environment" {
	/usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null || skip "Debian's python3-venv is not installed"
	reach "pip's index" /usr/bin/python3 -m pip download -q --no-deps -d "$TEST_DIR/probe" six
	export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CACHE_DIR=$TEST_DIR/pip-cache PIP_NO_COMPILE= PIP_PROGRESS_BAR=off
	both '/usr/bin/python3 -m venv env && ls env/bin | wc -l; find env -type l | sort | xargs readlink'
	both '. env/bin/activate; pip -q install requests==2.31.0 numpy pytest 2>&1 | grep -v notice; python -c "import numpy, requests; print(numpy.arange(10).sum(), requests.__version__)"; pip freeze | md5sum'
	both '. env/bin/activate; pip -q install requests==2.32.3; python -c "import requests; print(requests.__version__)"; pip check; find env -name "~*" -o -name "*.tmp"'
	same_trees env '/(\.pyc|RECORD|pyvenv\.cfg) f/d;/^bin\/[^ ]* f/d'
	both '. env/bin/activate; mkdir -p proj/mod; echo "def f(): return 1" >proj/mod/__init__.py; printf "[project]\nname=\"mod\"\nversion=\"1\"\n[build-system]\nrequires=[\"setuptools\"]\nbuild-backend=\"setuptools.build_meta\"\n" >proj/pyproject.toml; echo "import mod
def test_f(): assert mod.f() == 1" >proj/test_mod.py; pip -q install -e proj; cd proj; pytest -q 2>&1 | grep -o "1 passed"; cd ..'
	both '. env/bin/activate; cd proj; echo "def f(): return 2" >mod/__init__.py; pytest -q 2>&1 | grep -o "1 failed"; cd ..; pip -q uninstall -y numpy mod; pip list 2>/dev/null | wc -l; python -m compileall -q env >/dev/null; find env -name "*.pyc" | wc -l'
	ntr fork default f
	both 'rm -rf env; ls -A'
	run ntr run -s f -c '. env/bin/activate; python -c "import requests; print(requests.__version__)"; rm -rf env; ls -A'
	assert_line 2.32.3
	refute_line env
}

@test "cargo: dependencies with a procedural macro, incremental builds, tests, hard links, a locked build directory" {
	need cargo
	local home
	home=$(getent passwd "$(id -u)" | cut -d: -f6)
	export RUSTUP_HOME=${RUSTUP_HOME:-$home/.rustup} CARGO_HOME=$TEST_DIR/cargo CARGO_TERM_COLOR=never CARGO_INCREMENTAL=1
	cargo --version >/dev/null 2>&1 || skip "cargo does not run here"
	mkdir probe
	(cd probe && cargo init -q --vcs none --name probe && echo 'itoa = "1"' >>Cargo.toml) || skip "cargo does not run here"
	reach "cargo's registry" sh -c 'cd probe && cargo fetch'
	mkdir -p c/{lib,app}/src
	printf '[workspace]\nmembers = ["lib", "app"]\nresolver = "2"\n' >c/Cargo.toml
	printf '[package]\nname = "lib"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nserde = { version = "1", features = ["derive"] }\nserde_json = "1"\n' >c/lib/Cargo.toml
	printf '#[derive(serde::Serialize)]\npub struct P { pub x: u32 }\npub fn f() -> String { serde_json::to_string(&P { x: 1 }).unwrap() }\n#[test]\nfn t() { assert!(f().contains("x")); }\n' >c/lib/src/lib.rs
	printf '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nlib = { path = "../lib" }\n' >c/app/Cargo.toml
	printf 'fn main() { println!("{}", lib::f()); }\n' >c/app/src/main.rs
	# The order of what is compiled at once differs from time to time.
	local build='cargo build 2>&1 | grep -E "^ *(Compiling|warning|error)" | sed "s/(.*//" | sort'
	both "cp -r $PWD/c . && cd c && cargo generate-lockfile -q 2>/dev/null; $build"
	both "$build; target/debug/app; find target -samefile target/debug/app | wc -l"
	both "sed -i 's/x: 1/x: 2/' lib/src/lib.rs; $build; target/debug/app"
	both "touch app/src/main.rs; $build; cargo test -q 2>&1 | grep -c 'test result: ok'"
	both "$build; cargo build --release 2>&1 | grep -c -e warning -e error; target/release/app; cargo doc --no-deps -q 2>&1; ls target/doc | head -n 3"
	both "(cargo build -q & cargo test -q >/dev/null 2>&1 & wait); $build; cargo clean -q -p lib; $build; target/debug/app"
	ntr fork default f
	ntr stop
	# In a fork, and after a rollback, old files are new and times go back: what is stale is built, what is not is not.
	run ntr run -s f -c "$build; target/debug/app"
	assert_output '{"x":2}'
	ntr run -c "sed -i 's/x: 2/x: 3/' lib/src/lib.rs; cargo build -q; target/debug/app" >out
	assert_equal "$(cat out)" '{"x":3}'
	ntr rollback --steps 1
	run ntr run -c "$build; target/debug/app"
	assert_output '{"x":2}'
	both 'cargo clean -q; ls -A'
}

@test "go: a module with dependencies, both caches in the workspace, tests, a race build, clean" {
	need go
	export GOFLAGS=-mod=mod GOTELEMETRY=off GOTOOLCHAIN=local
	mkdir probe
	(cd probe && GOPATH=$TEST_DIR/gp go mod init example.org/probe 2>/dev/null) || skip "go does not run here"
	reach "Go's module proxy" sh -c "cd probe && GOPATH=$TEST_DIR/gp go get github.com/google/uuid@v1.6.0"
	mkdir -p g/in
	printf 'package main\nimport (\n"fmt"\n"example.org/m/in"\n"github.com/google/uuid"\n)\nfunc main() { fmt.Println(in.F(), len(uuid.NewString())) }\n' >g/m.go
	printf 'package in\nfunc F() int { return 1 }\n' >g/in/in.go
	printf 'package in\nimport "testing"\nfunc TestF(t *testing.T) { if F() < 1 { t.Fail() } }\nfunc BenchmarkF(b *testing.B) { for i := 0; i < b.N; i++ { F() } }\n' >g/in/in_test.go
	local compiles='grep -c "/compile "'
	both "cp -r $PWD/g . && cd g && export GOPATH=\$PWD/../gopath GOCACHE=\$PWD/../gocache && go mod init -q example.org/m 2>/dev/null || go mod init example.org/m 2>/dev/null; go get github.com/google/uuid@v1.6.0 2>/dev/null; go build -o m && ./m; cat go.mod; stat -c %a \$GOPATH/pkg/mod/github.com/google/uuid@v1.6.0"
	if [ -n "${NTR_FOLDS:-}" ]; then settle; fi
	both "export GOPATH=\$PWD/../gopath GOCACHE=\$PWD/../gocache; go build -x -o m2 2>&1 | $compiles || true; cmp m m2; go test ./... | grep -o -e ^ok -e FAIL; go vet ./...; go mod verify"
	both "export GOPATH=\$PWD/../gopath GOCACHE=\$PWD/../gocache; go test ./... | grep -o -e cached -e FAIL; sed -i 's/return 1/return 2/' in/in.go; go build -x -o m 2>&1 | $compiles; ./m; go test -run x -bench . -benchtime 10x ./in | grep -c ^Benchmark"
	both "export GOPATH=\$PWD/../gopath GOCACHE=\$PWD/../gocache; go build -race -o r . 2>/dev/null && ./r; go mod tidy; go mod vendor; ls vendor/github.com/google; go build -mod=vendor -o m && ./m; go clean -testcache"
	both "export GOPATH=\$PWD/../gopath GOCACHE=\$PWD/../gocache; go list -m all; rm -rf ../gopath 2>/dev/null || echo read-only; go clean -modcache; go clean -cache; ls -A .. ../gopath 2>/dev/null | grep -v cache; rm -r vendor"
}
