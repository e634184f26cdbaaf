/* init_wrap: bash for one script, and the state that it leaves.
 *
 * The script travels in a memfd (it may be larger than an argument may be) which bash gets as a high
 * descriptor, N, and evaluates on line 1 of the wrapper, so that line numbers in messages are the script's
 * own. At the end the state is appended to the same memfd, with builtins only: umask, cwd, NUL, `declare
 * -px`, NUL.
 *
 * Where N goes: the eval runs inside { …; } N>&-. bash then keeps N as a close-on-exec copy (the first free
 * number from 10), closes N itself, and puts it back when the group ends or `exit` leaves it; after a fatal
 * signal it does not, so the state function also looks at 10. Commands of the script thus never see the
 * descriptor. As a script may use those numbers itself, the memfd carries mode bits that no other file has
 * (sticky), and is written to only if it has them.
 *
 * When: in an EXIT trap, which bash also runs after `exit`, set -e, set -u and SIGTERM; only in the main
 * shell. A script that sets an EXIT trap of its own would replace it, so scripts that may do so (they hold
 * "trap" together with "exit" or a 0) get a function `trap`, which adds the state to the script's trap,
 * before it and again behind it, and keeps `trap -p` honest. Being a function, it has to make up for what
 * bash does with the pseudo-signals in one: RETURN and DEBUG would fire for itself, and resetting ERR, DEBUG
 * or RETURN would be undone at its end (ignoring them is not). Where a sourced file replaces the trap
 * instead, the state is still taken if the script comes to its end.
 *
 * Known limits: `exec CMD` leaves no state. Syntax errors say "eval:" where bash -c says "-c:". set -x shows
 * one more "+". A script that closes descriptor 10 loses the state and sees one message about it. In posix
 * mode `trap` cannot be a function, so an EXIT trap there costs the state when `exit` ends the script. */
#include "init.h"

#include "../base/buf.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { STATE_MAX = 64 << 20, MEMFD_MODE = S_ISVTX | 0600 };

/* ---- the wrapper's text: one line; @ stands for N ---- */

#define OUT                                                                                                 \
	"{ builtin umask; builtin pwd; builtin printf '\\0'; builtin declare -px; builtin printf '\\0'; } " \
	">&"
#define QUIET " >/dev/null 2>&1"

/* $2 set: write although a state was taken when the script came to its end. Its own status is the script's,
 * so that a trap behind it sees the right $?; the callers keep it from being taken for a failure. */
static const char text_state[] =
        "builtin mapfile -d '' -t -u @ BASH_EXECUTION_STRING; "
        "__ntr_state() { builtin local -; builtin set +aeuvx; "
        "if [[ $BASHPID == \"$$\" && ! ( -v __ntr_done && -z ${2-} ) ]]; then "
        "if [[ -k /dev/fd/@ ]]; then " OUT "@; elif [[ -k /dev/fd/10 ]]; then " OUT "10; fi; fi; "
        "builtin return \"$1\"; }; "
        "__ntr_end() { __ntr_state \"$1\" && builtin :; __ntr_done=1; builtin return \"$1\"; }; ";

#define HEAD "{ __ntr_state \\\"\\$?\\\" && :; }" QUIET "; "
#define TAIL "{ __ntr_state 0 1; }" QUIET

static const char text_trap[] =
        "if [[ ! -o posix ]]; then __ntr_guard='case ${FUNCNAME-} in trap) ;; *) '; "
        "__ntr_traps() { builtin local l b=\"trap -- '" HEAD "' EXIT\"; l=$(builtin trap \"$@\"; "
        "builtin printf %s \"x$?\"); builtin local r=${l##*x}; l=${l%x*}; "
        "l=${l//\"$b\"$'\\n'/}; l=${l//\"" HEAD "\"/}; l=${l//$'\\n'\"" TAIL "\"/}; "
        "l=${l//\"$__ntr_guard\"/}; l=${l//$'\\n;; esac # ntr'/}; "
        "for b in ERR DEBUG RETURN; do l=${l//\"trap -- '' $b\"$'\\n'/}; done; "
        "builtin printf %s \"$l\"; builtin return $r; }; "
        "trap() { { builtin local - s o c; builtin set +aeuvx; } 2>/dev/null; "
        "if [[ $# == 0 || $1 == -?* && $1 != -- ]]; then __ntr_traps \"$@\"; builtin return; fi; "
        "if [[ $1 == -- ]]; then builtin shift; fi; "
        "if [[ $# == 1 || $1 == +([0-9]) ]]; then builtin set -- - \"$@\"; fi; "
        "c=${1-}; o=0; builtin shift; for s; do case ${s^^} in "
        "0|EXIT|SIGEXIT) if [[ $BASHPID != \"$$\" ]]; then builtin trap -- \"$c\" EXIT; "
        "elif [[ -z $c || $c == - ]]; then builtin trap -- \"" HEAD "\" EXIT; "
        "else builtin trap -- \"" HEAD "\"\"$c\"$'\\n'\"" TAIL "\" EXIT; fi;; "
        "RETURN|DEBUG) if [[ -z $c || $c == - ]]; then builtin trap '' \"$s\"; "
        "else builtin trap -- \"$__ntr_guard$c\"$'\\n;; esac # ntr' \"$s\"; fi;; "
        "ERR) if [[ $c == - ]]; then builtin trap '' ERR; else builtin trap -- \"$c\" ERR; fi;; "
        "*) if ! builtin trap -- \"$c\" \"$s\" 2>/dev/null; then o=1; builtin printf "
        "'bash: line %s: trap: %s: invalid signal specification\\n' \"${BASH_LINENO[0]}\" \"$s\" >&2; fi;; "
        "esac; done; builtin return $o; }; fi; ";

static const char text_run[] = "builtin trap '{ __ntr_state \"$?\" && :; }" QUIET "; ' EXIT; "
                               "{ builtin eval \"${BASH_EXECUTION_STRING[0]-}\"; } @>&-; "
                               "{ __ntr_end \"$?\" && :; }" QUIET;

static bool may_trap_exit(const char *script)
{
	return strstr(script, "trap") && (strcasestr(script, "exit") || strchr(script, '0'));
}

char *ntr_wrap_text(const char *script, int fd)
{
	const char *parts[] = {text_state, may_trap_exit(script) ? text_trap : "", text_run};
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	for (size_t i = 0; i < NTR_COUNT(parts); i++)
		for (const char *s = parts[i]; *s; s++) {
			if (*s == '@' && !(s > parts[i] && s[-1] == '$')) /* not "$@" */
				ntr_buf_printf(&b, "%d", fd);
			else
				ntr_buf_byte(&b, (uint8_t)*s);
		}
	if (!ntr_buf_cstr(&b))
		return NULL;
	return (char *)ntr_steal_ptr(b.data);
}

int ntr_wrap_open(const char *script, size_t len, int *ret_fd)
{
	ntr_autoclose int fd = memfd_create("ntr-script", MFD_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = ntr_write_all(fd, script, len);
	if (!r && (fchmod(fd, MEMFD_MODE) || lseek(fd, 0, SEEK_SET)))
		r = -errno;
	if (!r)
		*ret_fd = ntr_steal_fd(&fd);
	return r;
}

/* ---- reading what `declare -px` wrote ---- */

static unsigned digits(const char **p, unsigned base, int max)
{
	unsigned v = 0;

	for (; max > 0 && isxdigit((unsigned char)**p); max--, ++*p) {
		unsigned d = isdigit((unsigned char)**p) ? (unsigned)(**p - '0')
		                                         : (unsigned)(tolower((unsigned char)**p) - 'a' + 10);

		if (d >= base)
			break;
		v = v * base + d;
	}
	return v;
}

/* One escape of $'…', p behind the backslash. */
static void ansi_escape(const char **p, struct ntr_buf *out)
{
	static const char from[] = "abeEfnrtv", to[] = "\a\b\033\033\f\n\r\t\v";
	const char *at = **p ? strchr(from, **p) : NULL;

	if (at) {
		ntr_buf_byte(out, (uint8_t)to[at - from]);
		++*p;
	} else if (**p >= '0' && **p <= '7') {
		ntr_buf_byte(out, (uint8_t)digits(p, 8, 3));
	} else if (**p == 'x') {
		++*p;
		ntr_buf_byte(out, (uint8_t)digits(p, 16, 2));
	} else if (**p) {
		ntr_buf_byte(out, (uint8_t) * (*p)++);
	}
}

/* A word as bash prints it back: any mix of "…", '…', $'…' and plain characters; up to a newline outside
 * quotes. */
static int read_word(const char **pp, struct ntr_buf *out)
{
	const char *p = *pp;
	char quote = 0; /* ", ' or $ for $'…' */

	for (; *p && (quote || *p != '\n');) {
		char c = *p++;

		if (!quote && c == '$' && *p == '\'') {
			quote = '$';
			p++;
		} else if (!quote && (c == '"' || c == '\'')) {
			quote = c;
		} else if ((quote == '$' && c == '\'') || (quote && quote != '$' && c == quote)) {
			quote = 0;
		} else if (c == '\\' && quote == '$') {
			ansi_escape(&p, out);
		} else if (c == '\\' && quote != '\'' && *p) {
			ntr_buf_byte(out, (uint8_t)*p++);
		} else {
			ntr_buf_byte(out, (uint8_t)c);
		}
	}
	*pp = p;
	return quote ? -EINVAL : out->err;
}

static bool is_name(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] != '_' && !isalpha((unsigned char)s[i]) && !(i && isdigit((unsigned char)s[i])))
			return false;
	return n > 0;
}

/* "declare -x NAME=VALUE" (posix mode: "export NAME=VALUE"), p at its begin. Variables without a value are
 * not in the environment of any command, arrays are never exported. */
static int read_line(const char **pp, json_t *env)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	const char *p = *pp, *name;
	bool array = false;
	int r;

	p += strcspn(p, " \n");
	for (p += *p == ' '; *p == '-'; p += *p == ' ')
		for (; *p && *p != ' ' && *p != '\n'; p++)
			array |= *p == 'a' || *p == 'A';
	name = p;
	p += strcspn(p, "=\n");
	if (*p != '=') {
		*pp = p + (*p == '\n');
		return 0;
	}
	ntr_buf_add(&b, name, (size_t)(p - name) + 1);
	array |= !is_name(name, (size_t)(p - name));
	p++;
	array |= *p == '(';
	r = read_word(&p, &b);
	*pp = p + (*p == '\n');
	if (r || array || !strncmp(name, "NTR_CALL=", 9))
		return r;
	return json_array_append_new(env, ntr_json_bytes(b.data, b.len)) ? -ENOMEM : 0;
}

/* Names that are no shell variables (exported functions among them) pass through bash unseen and unchanged.
 */
static int add_unseen(char *const *began, json_t *env)
{
	for (; began && *began; began++) {
		size_t n = strcspn(*began, "=");

		if (!is_name(*began, n) && json_array_append_new(env, ntr_json_bytes(*began, strlen(*began))))
			return -ENOMEM;
	}
	return 0;
}

static json_t *parse_record(const char *head, const char *vars, char *const *began)
{
	ntr_autojson json_t *env = json_array();
	char *cwd;
	unsigned long mask = strtoul(head, &cwd, 8);
	size_t n;

	if (*cwd++ != '\n' || *cwd != '/' || !env)
		return NULL;
	n = strlen(cwd);
	n -= cwd[n - 1] == '\n';
	while (*vars)
		if (read_line(&vars, env))
			return NULL;
	if (add_unseen(began, env))
		return NULL;
	return json_pack("{s:o,s:I,s:o}", "cwd", ntr_json_bytes(cwd, n), "umask", (json_int_t)mask, "env",
	        ntr_steal_ptr(env));
}

json_t *ntr_wrap_state(int fd, size_t script_len, char *const *began)
{
	ntr_autofree char *data = NULL;
	const char *head = NULL, *vars = NULL, *p, *stop;
	struct stat st;
	size_t n;

	if (fstat(fd, &st) || st.st_size <= (off_t)script_len || st.st_size - (off_t)script_len > STATE_MAX)
		return NULL;
	n = (size_t)st.st_size - script_len;
	data = malloc(n + 1);
	if (!data || ntr_pread_exact(fd, data, n, (off_t)script_len))
		return NULL;
	data[n] = '\0';
	/* The last record that is whole: a later one may have been cut off by a kill. */
	for (p = data, stop = data + n; p < stop;) {
		const char *a = memchr(p, '\0', (size_t)(stop - p));
		const char *b = a ? memchr(a + 1, '\0', (size_t)(stop - a - 1)) : NULL;

		if (!b)
			break;
		head = p;
		vars = a + 1;
		p = b + 1;
	}
	return head ? parse_record(head, vars, began) : NULL;
}
