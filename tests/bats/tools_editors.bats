# Editors and how they save: every pattern on committed files, links among them, against a plain directory; and the editors themselves.
load common
load tools

setup() { ntr_setup; }
teardown() { ntr_teardown; }

files='mkdir -p d; for f in plain mode ro link-to hard; do printf "1 %s\n" $f >d/$f; done; chmod 750 d/mode; chmod 440 d/ro; ln -sf link-to d/link; setfattr -n user.tag -v x d/plain 2>/dev/null || true'
look='for f in d/* d/.[!.]*; do [ -e "$f" ] && stat -c "%n %a %h %s %F" "$f" && [ ! -d "$f" ] && cat "$f"; done; getfattr -d d/plain 2>/dev/null || true'

@test "ways to save: in place, atomically with fsync, over a backup, over a link of the old, exchanged, mapped, through O_TMPFILE" {
	cat >save.py <<-'P'
		import ctypes, mmap, os, stat, sys
		libc = ctypes.CDLL(None, use_errno=True)
		how, path = sys.argv[1:3]
		text = open(path, "rb").read() + b"saved " + how.encode() + b"\n"
		def sync_dir(): d = os.open(os.path.dirname(path), os.O_RDONLY); os.fsync(d); os.close(d)
		def write(p, flags, mode=0o666):
		    fd = os.open(p, flags, mode); os.write(fd, text); os.fsync(fd); return fd
		def mode(fd): os.fchmod(fd, stat.S_IMODE(os.stat(path).st_mode)); os.close(fd)
		real, new, old = os.path.realpath(path), path + ".new", path + "~"
		if how == "truncate": os.close(write(path, os.O_WRONLY | os.O_TRUNC))
		elif how == "overwrite":  # written over, cut after
		    fd = os.open(path, os.O_RDWR); os.pwrite(fd, text, 0); os.ftruncate(fd, len(text)); os.fdatasync(fd); os.close(fd)
		elif how == "append": os.close(os.open(path, os.O_WRONLY | os.O_APPEND)); open(path, "ab", 0).write(b"saved append\n")
		elif how == "atomic": mode(write(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)); os.replace(new, real); sync_dir()
		elif how == "backup-rename": os.replace(real, old); mode_ = stat.S_IMODE(os.stat(old).st_mode); fd = write(real, os.O_WRONLY | os.O_CREAT | os.O_EXCL); os.fchmod(fd, mode_); os.close(fd)
		elif how == "backup-copy": open(old, "wb").write(open(path, "rb").read()); os.close(write(path, os.O_WRONLY | os.O_TRUNC)); os.unlink(old)
		elif how == "backup-link": os.link(real, old); mode(write(new, os.O_WRONLY | os.O_CREAT)); os.replace(new, real); os.unlink(old)
		elif how == "safe-write":  # new, old away, new in place, old gone
		    mode(write(new, os.O_WRONLY | os.O_CREAT)); os.rename(real, old); os.rename(new, real); os.unlink(old); sync_dir()
		elif how == "unlink": m = stat.S_IMODE(os.stat(path).st_mode); os.unlink(real); fd = write(real, os.O_WRONLY | os.O_CREAT | os.O_EXCL); os.fchmod(fd, m); os.close(fd)
		elif how == "exchange":
		    mode(write(new, os.O_WRONLY | os.O_CREAT))
		    assert libc.renameat2(-100, os.fsencode(new), -100, os.fsencode(real), 2) == 0; os.unlink(new)
		elif how == "tmpfile":
		    fd = write(os.path.dirname(path), os.O_WRONLY | os.O_TMPFILE); os.fchmod(fd, stat.S_IMODE(os.stat(path).st_mode))
		    assert libc.linkat(-100, b"/proc/self/fd/%d" % fd, -100, os.fsencode(new), 0x400) == 0; os.close(fd); os.replace(new, real)
		elif how == "mapped":
		    fd = os.open(path, os.O_RDWR); os.ftruncate(fd, len(text))
		    with mmap.mmap(fd, len(text)) as m: m[:] = text; m.flush()
		    os.close(fd)
		elif how == "lock":  # a lock file beside it, a swap file, both gone after
		    os.symlink(f"user@host.{1}", os.path.dirname(path) + "/.#lock"); fd = os.open(path + ".swp", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
		    os.write(fd, b"swap"); os.close(write(path, os.O_WRONLY | os.O_TRUNC)); os.close(fd); os.unlink(path + ".swp"); os.unlink(os.path.dirname(path) + "/.#lock")
		assert open(path, "rb").read() == text, how
	P
	local how calls
	both "$files"
	calls=(truncate overwrite append atomic backup-rename backup-copy backup-link safe-write unlink exchange tmpfile mapped lock)
	[ -n "${NTR_LONG:-}" ] || calls=('truncate atomic backup-link tmpfile' 'overwrite append backup-rename backup-copy safe-write unlink exchange mapped lock')
	for how in "${calls[@]}"; do # each on committed files, or some after another
		both "for how in $how; do for f in d/plain d/mode d/link; do /usr/bin/python3 $PWD/save.py \$how \$f; done; $look; rm -f d/*~; ls -A d; done"
	done
	ntr fork default f
	both "rm -f d/*; $files; $look"
	run ntr run -s f -c 'wc -l <d/plain; wc -l <d/mode; wc -l <d/link'
	assert_output $'14\n14\n14'
}

# edits NAME: whether an editor is there; how it adds "edited" as the last line of $f, without a terminal or with one made by script(1).
editors=(
	"ed|printf 'a\nedited\n.\nw\nq\n' | ed -s \"\$f\""
	"ex|printf 'a\nedited\n.\nwq\n' | ex -s \"\$f\""
	"sed|sed -i --follow-symlinks '\$a edited' \"\$f\""
	"perl|perl -i.bak -pe '\$_ .= \"edited\n\" if eof' \"\$f\""
	"nano|(sleep 0.5; printf 'edited\r'; sleep 0.2; printf '\017\r'; sleep 0.4; printf '\030') | script -qec \"nano -R \$f\" /dev/null >/dev/null"
	"emacs|emacs -Q --batch --eval '(setq backup-enable-predicate (lambda (f) t) find-file-visit-truename t)' \"\$f\" --eval '(progn (goto-char (point-max)) (insert \"edited\n\") (save-buffer))' 2>/dev/null"
	"emacs|emacs -Q --batch --eval '(setq backup-enable-predicate (lambda (f) t) file-precious-flag t create-lockfiles t)' \"\$f\" --eval '(progn (goto-char (point-max)) (insert \"edited\n\") (save-buffer))' 2>/dev/null"
	"emacs|emacs -Q --batch --eval '(setq backup-enable-predicate (lambda (f) t) backup-by-copying t make-backup-files t)' \"\$f\" --eval '(progn (goto-char (point-max)) (insert \"edited\n\") (save-buffer))' 2>/dev/null"
	"joe|(sleep 0.5; printf '\013vedited\r'; sleep 0.2; printf '\013x') | script -qec \"joe -asis \$f\" /dev/null >/dev/null"
)
for v in vim nvim; do
	for how in 'nobackup nowritebackup' 'writebackup backupcopy=yes' 'writebackup backupcopy=no' 'writebackup backupcopy=auto' 'backup backupcopy=yes' 'backup backupcopy=no' 'backup backupcopy=auto,breaksymlink' 'patchmode=.orig undofile undodir=d' 'nowritebackup nofsync'; do
		editors+=("$v|$v -u NONE -i NONE -es -c 'set $how directory=d backupskip= backupdir=d' -c 'normal Goedited' -c wq \"\$f\" >/dev/null 2>&1 </dev/null")
	done
done

# try_editors WHICH…
try_editors() {
	local e name
	both "$files"
	for e in "${editors[@]}"; do
		name=${e%%|*}
		[[ " $* " == *" $name "* ]] && command -v "$name" >/dev/null || continue
		both "export TERM=xterm; for f in d/plain d/mode d/link; do ${e#*|} || echo failed \$?; done; rm -f d/*%*; ls -A d; find d -name '*~*' -o -name '*.un~' | sort; $look; rm -rf d; $files"
	done
}

@test "vim in every way it keeps backups, ed, sed, perl" {
	need vim
	local all=("${editors[@]}") i
	[ -n "${NTR_LONG:-}" ] || editors=("${all[0]}" "${all[10]}" "${all[11]}" "${all[14]}")
	try_editors ed sed perl vim
}

@test "other editors: ex, nano, emacs, joe, neovim" {
	long
	need script
	try_editors ex nano emacs joe nvim
}

@test "an editor's open file over a commit: its swap file, a save after other calls, a recovered session" {
	need vim script
	# The editor stays open in the background, over calls and commits, and saves when it is told to.
	call 'printf "one\n" >f; mkfifo keys'
	ntr run -c 'export TERM=xterm; (exec 3<>keys; script -qec "vim -u NONE -i NONE -N f" /dev/null <&3 >/dev/null 2>&1) </dev/null >/dev/null 2>&1 & for i in {1..100}; do [ -e .f.swp ] && break; sleep 0.05; done; sleep 0.7; ls -A'
	ntr run -c 'printf "Gotwo\033:w\r" >keys; for i in {1..100}; do grep -q two f && break; sleep 0.05; done; cat f' >out
	assert_equal "$(cat out)" $'one\ntwo'
	ntr run -c 'printf "Gothree\033:w\r" >keys; for i in {1..100}; do grep -q three f && break; sleep 0.05; done; cat f' >out
	assert_equal "$(cat out)" $'one\ntwo\nthree'
	ntr run -c 'printf "Gofour\033:preserve\r" >keys; sleep 0.5'
	# What was not saved is in the swap file of a fork, as after a crash.
	ntr fork default f
	run ntr run -s f -c 'vim -u NONE -i NONE -N -es -r f -c "w! rescued" -c q! >/dev/null 2>&1 </dev/null; cat rescued'
	assert_output $'one\ntwo\nthree\nfour'
	ntr run -c 'printf ":q!\r" >keys; for i in {1..100}; do [ -e .f.swp ] || break; sleep 0.05; done; rm keys; ls -A' >out
	assert_equal "$(cat out)" f
}
