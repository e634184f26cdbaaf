# Compilers, make, package managers: over calls with a commit and a fold after each, without the network.
load common
load tools

setup() { ntr_setup; }
teardown() { ntr_teardown; }

@test "make rebuilds what changed and nothing else" {
	need make gcc ar ranlib
	both 'mkdir src; for i in 1 2 3 4; do echo "int f$i(void) { return $i; }" >src/f$i.c; done
		echo "int f1(void), f2(void), f3(void), f4(void); int main(void) { return f1() + f2() + f3() + f4(); }" >src/main.c
		printf "prog: main.o lib.a\n\tgcc -o \$@ main.o lib.a\nlib.a: f1.o f2.o f3.o f4.o\n\tar rc \$@ \$^\n\tranlib \$@\n%%.o: src/%%.c\n\tgcc -c -o \$@ \$<\n" >Makefile'
	both 'make'
	both 'make; ./prog || echo $?'
	both 'make -q; touch src/f2.c; make -n; make; make -q'
	both 'echo "int f3(void) { return 30; }" >src/f3.c; make; ./prog || echo $?'
	both 'rm f1.o; make; cp -p prog saved; touch -d "2001-01-01" src/main.c; make; cmp prog saved && echo same'
	both 'mv src/f4.c src/f5.c; make 2>&1; mv src/f5.c src/f4.c; make; strip prog; ./prog || echo $?'
	# A rollback brings the old times back with the old files: nothing is to do, and nothing is wrong.
	ntr run -c 'echo broken >src/f1.c; make >/dev/null 2>&1' || true
	ntr rollback --steps 1
	run ntr run -c 'make -q && ./prog'
	assert_failure 37
}

@test "mapped output: a linker's, an archive's, a shared library's, and what runs while it is replaced" {
	need gcc ld
	both 'echo "int answer(void) { return 41; }" >l.c; gcc -shared -fPIC -o libl.so l.c; echo "int answer(void); int main(void) { return answer(); }" >m.c; gcc -o m m.c -L. -ll -Wl,-rpath,"\$ORIGIN"; ./m || echo $?'
	both 'echo "int answer(void) { return 42; }" >l.c; gcc -shared -fPIC -o libl.so l.c; ./m || echo $?'
	both 'cp /bin/sleep s; ./s 5 & sleep 0.2; (echo x >s) 2>/dev/null || echo busy; rm s; cp /bin/true s; ./s; kill %1; wait 2>/dev/null; echo done'
	both 'ld -r -o both.o <(:) 2>/dev/null || gcc -r -o both.o l.c; nm both.o | grep -c answer; ./m || echo $?'
}

@test "python: a venv, an offline wheel with an extension in C, its tests, its removal" {
	/usr/bin/python3 -c 'from importlib.util import find_spec as f; exit(not all(map(f, ["venv", "pip", "setuptools", "wheel"])))' || skip "Debian's python3-venv, -pip, -setuptools, -wheel are not installed"
	mkdir pkg
	cat >pkg/setup.py <<-'P'
		from setuptools import Extension, setup
		setup(name="tiny", version="1.0", packages=["tiny"], entry_points={"console_scripts": ["tiny=tiny:main"]},
		      ext_modules=[Extension("tiny._c", ["c.c"])] if __import__("os").path.exists("/usr/include/python3.11/Python.h") else [])
	P
	mkdir pkg/tiny
	echo 'def main(): print("tiny", __import__("sys").prefix)' >pkg/tiny/__init__.py
	printf '#include <Python.h>\nstatic struct PyModuleDef m = {PyModuleDef_HEAD_INIT, "_c"};\nPyMODINIT_FUNC PyInit__c(void) { return PyModule_Create(&m); }\n' >pkg/c.c
	export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
	ntr new p --from pkg
	ntr run -s p -c 'set -e; /usr/bin/python3 -m pip -q wheel --no-build-isolation --no-deps -w dist . ; ls dist' >out
	grep -q 'tiny-1.0.*whl' out
	ntr stop -s p
	ntr run -s p -c 'set -e; /usr/bin/python3 -m venv --system-site-packages --without-pip env; echo'
	ntr stop -s p
	ntr run -s p -c 'set -e; . env/bin/activate; python -m pip -q install --no-deps dist/*.whl'
	ntr stop -s p
	# the activated environment sticks, as an exported PATH does
	run ntr run -s p -- tiny
	assert_output 'tiny /workspace/env'
	run ntr run -s p -c 'cd /; python -c "import tiny; print(tiny.__file__)"'
	assert_output --regexp '^/workspace/env/lib/python3[.0-9]*/site-packages/tiny/__init__.py$'
	ntr run -s p -c 'set -e; python -m pip -q install --no-deps --force-reinstall /workspace/dist/*.whl; python -m pip -q uninstall -y tiny; cd /workspace; rm -rf env'
	ntr stop -s p
	run ntr run -s p -- ls
	refute_output --partial env
}

@test "npm: pack, install of local tarballs, scripts, links, ci, removal" {
	need node npm
	export npm_config_offline=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_cache=/workspace/.cache
	ntr run -c 'set -e
		for p in left right; do mkdir -p $p/lib $p/bin
			printf "{\"name\":\"%s\",\"version\":\"1.0.0\",\"main\":\"lib/i.js\",\"bin\":{\"%s\":\"bin/run\"}}" $p $p >$p/package.json
			echo "module.exports = \"$p\"" >$p/lib/i.js; printf "#!/usr/bin/env node\nconsole.log(require(\"../lib/i.js\"))\n" >$p/bin/run; chmod +x $p/bin/run
			for i in {1..40}; do echo $i >$p/lib/$i.js; done
			(cd $p && npm pack --silent --pack-destination ..); done; rm -r left right; ls' >out
	grep -q left-1.0.0.tgz out
	ntr stop
	ntr run -c 'set -e; mkdir app; cd app; echo "{\"name\":\"app\",\"version\":\"1.0.0\",\"scripts\":{\"t\":\"left && right\"}}" >package.json; npm install --silent ../left-1.0.0.tgz ../right-1.0.0.tgz >/dev/null; ls node_modules'
	ntr stop
	run ntr run -c 'node -e "console.log(require(\"left\"), require(\"right\"))"; npm run --silent t; ls -l node_modules/.bin | grep -c "^l"'
	assert_output $'left right\nleft\nright\n2'
	ntr fork default f
	ntr run -c 'set -e; npm uninstall --silent right >/dev/null; ls node_modules' >out
	assert_equal "$(cat out)" left
	ntr stop
	run ntr run -s f -c 'npm run --silent t'
	assert_output $'left\nright'
	ntr run -s f -c 'npm ci --silent >/dev/null 2>&1'
	run ntr run -s f -c 'npm ls --parseable | wc -l; rm -rf node_modules; ls'
	assert_line --index 0 3
	refute_output --partial node_modules
	run -127 ntr run -c 'npm run --silent t'
}

@test "cargo: a build, an incremental one, hard links in target" {
	[ -n "${NTR_LONG:-}" ] || skip "NTR_LONG is not set"
	local home
	home=$(getent passwd "$(id -u)" | cut -d: -f6)
	export RUSTUP_HOME=${RUSTUP_HOME:-$home/.rustup} CARGO_HOME=/workspace/.cargo CARGO_NET_OFFLINE=true
	need cargo
	cargo --version >/dev/null 2>&1 || skip "cargo does not run here"
	ntr run -c 'cargo init -q --name hello --vcs none . && mkdir -p src && echo "pub fn f() -> u32 { 1 }" >src/a.rs && printf "mod a;\nfn main() { println!(\"{}\", a::f()); }\n" >src/main.rs && cargo build -q'
	ntr stop
	run ntr run -c 'cargo build 2>&1 | grep -c Compiling; target/debug/hello; find target -samefile target/debug/hello | wc -l'
	assert_output $'0\n1\n2'
	run ntr run -c 'echo "pub fn f() -> u32 { 2 }" >src/a.rs; cargo build 2>&1 | grep -c Compiling; target/debug/hello'
	assert_output $'1\n2'
	ntr stop
	run ntr run -c 'cargo build 2>&1 | grep -c -e Compiling -e warning; cargo clean -q; ls'
	assert_line --index 0 0
	refute_output --partial target
}

@test "go: a build, the build cache in the workspace, tests" {
	[ -n "${NTR_LONG:-}" ] || skip "NTR_LONG is not set"
	need go
	export GOCACHE=/workspace/.gocache GOPATH=/workspace/.go GOFLAGS=-mod=mod GOPROXY=off GOTELEMETRY=off
	ntr run -c 'go mod init -q example.org/m 2>/dev/null || go mod init example.org/m; printf "package main\nfunc f() int { return 1 }\nfunc main() { println(f()) }\n" >m.go; printf "package main\nimport \"testing\"\nfunc TestF(t *testing.T) { if f() != 1 { t.Fail() } }\n" >m_test.go; go build -o m && ./m'
	ntr stop
	run ntr run -c 'go build -x -o m2 2>&1 | grep -c "/compile "; cmp m m2 && go test ./... | grep -o ^ok; go vet ./...'
	assert_line --index 0 0
	assert_line ok
	ntr stop
	run ntr run -c 'go test ./... | grep -o cached'
	assert_output cached
}

make_cmake_project() {
	mkdir -p p/{src,inc} && cd p
	printf 'cmake_minimum_required(VERSION 3.13)\nproject(p C)\ninclude_directories(inc)\nadd_library(part STATIC src/a.c src/b.c)\nadd_library(dyn SHARED src/c.c)\nadd_executable(prog src/main.c)\ntarget_link_libraries(prog part dyn)\nadd_custom_command(OUTPUT gen.h COMMAND ${CMAKE_COMMAND} -E echo "int gen(void);" DEPENDS src/gen.in)\nenable_testing()\nadd_test(NAME runs COMMAND prog)\ninstall(TARGETS prog part dyn)\n' >CMakeLists.txt
	for f in a b c; do printf '#include "h.h"\nint %s(void) { return H; }\n' $f >src/$f.c; done
	printf '#include "h.h"\nint a(void), b(void), c(void);\nint main(void) { return a() + b() + c() - 3 * H; }\n' >src/main.c
	echo '#define H 1' >inc/h.h && touch src/gen.in && touch -d 2020-01-01 src/* inc/* CMakeLists.txt
	cd ..
}

@test "cmake, ninja, ld, ar: a build, what a change rebuilds, a tree that is built moves, install, ctest" {
	need cmake ninja gcc ar ld
	make_cmake_project
	local built="ninja -C build -n | grep -v -e Entering -e '^ninja: no work' | sed 's/\[[0-9/]*\] //' | sort"
	both "cp -a $PWD/p . && cd p && cmake -G Ninja -S . -B build >/dev/null && ninja -C build | tail -n 1"
	both "$built; build/prog; ar t build/libpart.a; nm build/libpart.a | grep -c ' T '; cd build && ctest 2>&1 | grep 'tests passed'; cd .."
	both "echo 'int extra;' >>src/a.c; $built; ninja -C build >/dev/null; touch inc/h.h; $built; ninja -C build >/dev/null; touch CMakeLists.txt; ninja -C build >/dev/null; $built"
	both "rm build/libpart.a; $built; ninja -C build >/dev/null; cmp build/prog build/prog; DESTDIR=\$PWD/out cmake --install build --prefix /usr --strip >/dev/null; find out -type f | sort; out/usr/bin/prog 2>/dev/null || LD_LIBRARY_PATH=out/usr/lib out/usr/bin/prog"
	both "$built; ninja -C build -t clean >/dev/null; find build -name '*.o' | wc -l; ninja -C build >/dev/null; ninja -C build -t deps | grep -c h.h; gcc -o fused src/*.c -Iinc -flto -save-temps 2>/dev/null; ls *.o *.i *.s 2>/dev/null | wc -l; ./fused"
	# What was built before a fork is built in it; a rollback takes times back with the content.
	ntr fork default f
	run ntr run -s f -c "$built"
	assert_output ""
	ntr run -c 'echo broken >>src/b.c; ninja -C build >/dev/null' || true
	ntr rollback --steps 1
	run ntr run -c "$built; build/prog"
	assert_success
	assert_output ""
}

@test "linkers other than ld, ccache with hard links, split debugging, thin archives, a library under way while it is mapped" {
	long
	need gcc ar objcopy
	both 'for i in 1 2 3; do echo "int f$i(void) { return $i; }" >f$i.c; gcc -g -c f$i.c; done; ar rcT thin.a f1.o f2.o; ar rcs fat.a f1.o f2.o f3.o; echo "int f1(void), f2(void); int main(void) { return f1() + f2() - 3; }" >m.c; gcc -g -o m m.c thin.a && ./m; ar t thin.a'
	both 'objcopy --only-keep-debug m m.debug; strip -g m; objcopy --add-gnu-debuglink=m.debug m; ./m; ar d fat.a f3.o; ar t fat.a; echo "int f1(void) { return 2; }" >f1.c; gcc -c f1.c; ar r fat.a f1.o; gcc -o n m.c fat.a; ./n || echo $?; gcc -o o m.c thin.a; ./o || echo $?'
	local ld
	for ld in gold lld mold; do
		command -v "ld.$ld" >/dev/null || continue
		both "gcc -fuse-ld=$ld -o m.$ld m.c fat.a && ./m.$ld || echo \$?; gcc -fuse-ld=$ld -o m.$ld m.c thin.a && ./m.$ld || echo \$?"
	done
	if command -v ccache >/dev/null; then
		both 'export CCACHE_DIR=$PWD/cache CCACHE_NOCOMPRESS=1 CCACHE_HARDLINK=1; ccache gcc -c f2.c -o x2.o; ccache gcc -c f2.c -o y2.o; ccache --print-stats | grep -E "(direct_cache_hit|cache_miss)" | head -n 2; cmp x2.o y2.o; [ "$(find cache -samefile y2.o | wc -l)" -ge 1 ] && echo linked'
		both 'export CCACHE_DIR=$PWD/cache CCACHE_NOCOMPRESS=1 CCACHE_HARDLINK=1; ccache gcc -c f2.c -o z2.o; ccache --print-stats | grep -E "direct_cache_hit"; cmp x2.o z2.o; rm -r cache x2.o; cmp y2.o z2.o'
	fi
	both 'echo "int v(void) { return 1; }" >v.c; gcc -shared -fPIC -o libv.so v.c; printf "#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\nint main(void) { void *l = dlopen(\"./libv.so\", RTLD_NOW); int (*v)(void) = (int (*)(void))dlsym(l, \"v\"); system(\"echo \\\"int v(void) { return 2; }\\\" >v.c; gcc -shared -fPIC -o libv.so v.c\"); printf(\"%%d\", v()); dlclose(l); l = dlopen(\"./libv.so\", RTLD_NOW); printf(\"%%d\\n\", ((int (*)(void))dlsym(l, \"v\"))()); }\n" >d.c; gcc -o d d.c'
	both './d; ./d'
}
