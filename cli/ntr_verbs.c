/* verbs: the table of commands: names, options, help. */
#include "ntr.h"

#include <string.h>

static const struct argp_option new_options[] = {
        {"from", NTR_OPT_FROM, "ORIGIN", 0,
                "begin with the files of a directory, a tar (- for stdin) or SESSION[@COMMIT]", 0},
        {"durability", NTR_OPT_DURABILITY, "fsync|relaxed", 0,
                "when a commit is on disk: with its reply, or 50-100 ms later", 0},
        {"root", NTR_OPT_ROOT, "PATH", 0, "where calls see the files; /workspace without", 0},
        {"rung", NTR_OPT_RUNG, "none", 0, "the boundary around its calls: this version has none", 0},
        {"mount", NTR_OPT_MOUNT, "POINT=DIR[:rw]", 0,
                "show a directory of the host at POINT, read-only without :rw", 0},
        {0},
};
static const struct argp_option run_options[] = {
        {NULL, 'c', "SCRIPT", 0, "run SCRIPT with bash; its directory and exported variables stick", 0},
        {"timeout", NTR_OPT_TIMEOUT, "T", 0, "end the call after T: seconds, or 10s, 5m, 1h; status 124", 0},
        {"no-commit", NTR_OPT_NO_COMMIT, NULL, 0, "leave what it changes uncommitted", 0},
        {"env", NTR_OPT_ENV, "NAME=VALUE", 0, "set a variable for this call only", 0},
        {"cwd", NTR_OPT_CWD, "DIR", 0, "start in DIR, for this call only", 0},
        {"mount", NTR_OPT_MOUNT, "POINT=DIR[:rw]", 0,
                "show a directory of the host at POINT, from now on; POINT= takes it off", 0},
        {"rm", NTR_OPT_RM, NULL, 0, "run on a throw-away fork", 0},
        {"render", NTR_OPT_RENDER, NULL, 0, "print the result as an agent gets to read it", 0},
        {0},
};
static const struct argp_option py_options[] = {
        {NULL, 'c', "CODE", 0, "run CODE; ARGUMENTs are in sys.argv", 0},
        {"input", NTR_OPT_INPUT, "NAME=JSON", 0, "bind a value to a name", 0},
        {"echo", NTR_OPT_ECHO, "none|last|all", 0, "which bare expressions are printed; last without", 0},
        {"python", NTR_OPT_PYTHON, "PATH", 0,
                "the interpreter; else /workspace/.venv/bin/python, else /usr/bin/python3", 0},
        {"preload", NTR_OPT_PRELOAD, "MODULE", 0, "a module that the warm interpreter keeps imported", 0},
        {"timeout", NTR_OPT_TIMEOUT, "T", 0, "end the call after T: seconds, or 10s, 5m, 1h; status 124", 0},
        {"memory", NTR_OPT_MEMORY, "MB", 0, "memory that the call may take on top of the interpreter's", 0},
        {"readonly", NTR_OPT_READONLY, NULL, 0, "the cache cannot be changed, and nothing is committed", 0},
        {"no-commit", NTR_OPT_NO_COMMIT, NULL, 0, "leave what it changes uncommitted", 0},
        {"env", NTR_OPT_ENV, "NAME=VALUE", 0, "set a variable for this call only", 0},
        {"cwd", NTR_OPT_CWD, "DIR", 0, "start in DIR, for this call only", 0},
        {"mount", NTR_OPT_MOUNT, "POINT=DIR[:rw]", 0,
                "show a directory of the host at POINT, from now on; POINT= takes it off", 0},
        {"render", NTR_OPT_RENDER, NULL, 0, "print the result as an agent gets to read it", 0},
        {0},
};
static const struct argp_option tool_options[] = {
        {"timeout", NTR_OPT_TIMEOUT, "T", 0, "end a call after T: seconds, or 10s, 5m, 1h", 0},
        {"env", NTR_OPT_ENV, "NAME=VALUE", 0, "set a variable for this call only", 0},
        {"cwd", NTR_OPT_CWD, "DIR", 0, "start a call in DIR", 0},
        {"mount", NTR_OPT_MOUNT, "POINT=DIR[:rw]", 0,
                "show a directory of the host at POINT, from now on; POINT= takes it off", 0},
        {0},
};
static const struct argp_option mcp_options[] = {
        {"tools", NTR_OPT_TOOLS, "auto|terminal|split", 0,
                "which tools: terminal has Python inside the shell, split has run_python beside it; auto "
                "takes what "
                "fits the other options",
                0},
        {"versions", NTR_OPT_VERSIONS, NULL, 0, "tools for history, diff, fork and rollback too", 0},
        {"module", NTR_OPT_MODULE, "MODULE", 0, "a module that Python code may count on, kept imported", 0},
        {"no-cache", NTR_OPT_NO_CACHE, NULL, 0, "no `cache` in Python code", 0},
        {"python", NTR_OPT_PYTHON, "PATH", 0,
                "the interpreter; else /workspace/.venv/bin/python, else /usr/bin/python3", 0},
        {"timeout", NTR_OPT_TIMEOUT, "T", 0, "end a call after T: seconds, or 10s, 5m, 1h", 0},
        {"env", NTR_OPT_ENV, "NAME=VALUE", 0, "set a variable for every call", 0},
        {"cwd", NTR_OPT_CWD, "DIR", 0, "start every call in DIR", 0},
        {"mount", NTR_OPT_MOUNT, "POINT=DIR[:rw]", 0,
                "show a directory of the host at POINT, from now on; POINT= takes it off", 0},
        {0},
};
static const struct argp_option rm_options[] = {
        {"discard", NTR_OPT_DISCARD, NULL, 0, "drop uncommitted work instead of committing it first", 0},
        {0},
};
static const struct argp_option rollback_options[] = {
        {"steps", NTR_OPT_STEPS, "N", 0, "back by N commits", 0},
        {"discard", NTR_OPT_DISCARD, NULL, 0, "drop uncommitted work instead of committing it first", 0},
        {"force", NTR_OPT_FORCE, NULL, 0, "end a running call instead of waiting for it", 0},
        {0},
};
static const struct argp_option log_options[] = {
        {NULL, 'n', "N", 0, "the last N commits only", 0},
        {0},
};
static const struct argp_option diff_options[] = {
        {"name-status", NTR_OPT_NAME_STATUS, NULL, 0, "names and kinds of change only", 0},
        {"stat", NTR_OPT_STAT, NULL, 0, "lines added and removed per file", 0},
        {0},
};
static const struct argp_option commit_options[] = {
        {"message", 'm', "TEXT", 0, "what the commit is for", 0},
        {0},
};
static const struct argp_option ls_options[] = {
        {NULL, 'l', NULL, 0, "modes, sizes and times", 0},
        {0},
};
static const struct argp_option export_options[] = {
        {"dir", NTR_OPT_DIR, "DIR", 0, "into a new or empty directory", 0},
        {"tar", NTR_OPT_TAR, "FILE", 0, "into a tar archive; - for stdout", 0},
        {0},
};

const struct ntr_verb ntr_verbs[] = {
        {
                .name = "new",
                .group = NTR_GROUP_SESSIONS,
                .args = "NAME",
                .summary = "Make a session.",
                .details = "A session is also made by its first use; this is for options. Where a file or "
                           "directory of the name "
                           "ORIGIN exists, it is meant; SESSION~0 always names a session.",
                .examples = "  ntr new web --from ~/src/web\n  ntr new trial --from web@3f2a91c",
                .options = new_options,
                .max = 1,
                .run = ntr_new_main,
        },
        {
                .name = "fork",
                .group = NTR_GROUP_SESSIONS,
                .args = "SOURCE[@COMMIT] NEW",
                .summary = "Make a session that begins where another one is or was.",
                .details = "Costs the same whatever the size. Uncommitted work of SOURCE is committed first.",
                .examples = "  ntr fork web trial\n  ntr fork web~3 before",
                .min = 1,
                .max = 2,
                .run = ntr_fork_main,
        },
        {
                .name = "sessions",
                .group = NTR_GROUP_SESSIONS,
                .args = "",
                .summary = "List the sessions of the store.",
                .examples = "  ntr sessions\n  ntr sessions --json | jq -r .name",
                .run = ntr_sessions_main,
        },
        {
                .name = "rename",
                .group = NTR_GROUP_SESSIONS,
                .args = "OLD NEW",
                .summary = "Give a session another name.",
                .examples = "  ntr rename trial web2",
                .min = 2,
                .max = 2,
                .run = ntr_rename_main,
        },
        {
                .name = "rm",
                .group = NTR_GROUP_SESSIONS,
                .args = "NAME...",
                .summary = "Remove sessions. Their processes end.",
                .examples = "  ntr rm trial\n  ntr rm --discard a b c",
                .options = rm_options,
                .min = 1,
                .max = SIZE_MAX,
                .run = ntr_rm_main,
        },
        {
                .name = "run",
                .group = NTR_GROUP_CALLS,
                .args = "[--] COMMAND [ARGUMENT...]\n-c SCRIPT\n-",
                .summary = "Run a command or script; what it changes is one commit.",
                .details = "The command gets this terminal, stdin, stdout, stderr and environment; it starts "
                           "in the session's "
                           "directory, not in this one. With '-', or without a command and with stdin no "
                           "terminal, a script is "
                           "read from stdin. The exit status is the command's own; 125 when ntr itself "
                           "fails, 124 after a "
                           "timeout, 126 and 127 when the command cannot be run, 128+N after signal N. With "
                           "--json stdout and "
                           "stderr are captured and part of the result.",
                .examples = "  ntr run -- make test\n  ntr run -s web -c 'cd src && export CC=clang'\n  ntr "
                            "run --rm --timeout 5m -- "
                            "./try.sh\n  ntr run - < setup.sh",
                .options = run_options,
                .max = SIZE_MAX,
                .command = true,
                .failed = NTR_EXIT_NTR,
                .usage = NTR_EXIT_NTR,
                .run = ntr_run_main,
        },
        {
                .name = "py",
                .group = NTR_GROUP_CALLS,
                .args = "FILE [ARGUMENT...]\n-c CODE [ARGUMENT...]\n-",
                .summary = "Run Python in a session; what it changes is one commit.",
                .details =
                        "Each call is a process of its own, forked from an interpreter that the session "
                        "keeps "
                        "warm: names do not survive it, files and `cache` do. FILE is a file of the session. "
                        "The value of a last bare expression is printed. The exit status is as Python's: 1 "
                        "after an exception, that of sys.exit; 124 after a timeout, 125 when ntr itself "
                        "fails. "
                        "With --json the streams are captured and part of the result.",
                .examples = "  ntr py -c 'cache[\"n\"] = cache.get(\"n\", 0) + 1; cache[\"n\"]'\n  ntr py "
                            "--input "
                            "'rows=[1, 2, 3]' -c 'sum(rows)'\n  ntr py -s web tools/build.py --fast",
                .options = py_options,
                .max = SIZE_MAX,
                .command = true,
                .failed = NTR_EXIT_NTR,
                .usage = NTR_EXIT_NTR,
                .run = ntr_py_main,
        },
        {
                .name = "tool",
                .group = NTR_GROUP_CALLS,
                .args = "[NAME [JSON|-]]",
                .summary = "Use one of the tools that agents get.",
                .details =
                        "Prints what an agent reads: terminal, run_python, file_write, file_edit, "
                        "view_image, "
                        "history, diff, fork, rollback. JSON holds the arguments; - reads them from stdin. "
                        "Without NAME it lists the tools with what is said about them to a model. The exit "
                        "status is 1 when the tool says that it failed.",
                .examples = "  ntr tool terminal '{\"command\": \"ls -la\"}'\n  ntr tool file_write "
                            "'{\"path\": \"a.txt\", \"content\": \"hello\"}'\n  ntr tool --json "
                            "view_image '{\"path\": \"plot.png\"}'",
                .options = tool_options,
                .max = 2,
                .run = ntr_tool_main,
        },
        {
                .name = "ps",
                .group = NTR_GROUP_CALLS,
                .args = "",
                .summary = "List the processes of a session.",
                .examples = "  ntr ps -s web",
                .run = ntr_ps_main,
        },
        {
                .name = "stop",
                .group = NTR_GROUP_CALLS,
                .args = "",
                .summary = "End the processes of a session; its work is committed.",
                .examples = "  ntr stop -s web",
                .run = ntr_stop_main,
        },
        {
                .name = "log",
                .group = NTR_GROUP_HISTORY,
                .args = "",
                .summary = "List the commits of a session, newest first.",
                .examples = "  ntr log -n 10\n  ntr log -s web --json",
                .options = log_options,
                .run = ntr_log_main,
        },
        {
                .name = "show",
                .group = NTR_GROUP_HISTORY,
                .args = "COMMIT",
                .summary = "Show a commit: what ran, and which paths it changed.",
                .details = "COMMIT is SESSION, SESSION@PREFIX, SESSION~N, or a bare PREFIX of a commit of "
                           "the session.",
                .examples = "  ntr show 3f2a91c\n  ntr show web~1",
                .min = 1,
                .max = 1,
                .run = ntr_show_main,
        },
        {
                .name = "diff",
                .group = NTR_GROUP_HISTORY,
                .args = "[A [B]] [-- PATH...]",
                .summary = "Show what differs, as a patch that 'git apply' takes.",
                .details = "From A to B; from A to the head; alone: from the head to uncommitted work. The "
                           "exit status is 0 when "
                           "nothing differs, 1 when something does, 2 on trouble.",
                .examples = "  ntr diff web~3 web -- src\n  ntr diff --stat 3f2a91c",
                .options = diff_options,
                .max = SIZE_MAX,
                .failed = 2,
                .run = ntr_diff_main,
        },
        {
                .name = "status",
                .group = NTR_GROUP_HISTORY,
                .args = "",
                .summary = "Show the head of a session and its uncommitted work.",
                .examples = "  ntr status -s web",
                .run = ntr_status_main,
        },
        {
                .name = "commit",
                .group = NTR_GROUP_HISTORY,
                .args = "-m TEXT",
                .summary = "Commit what calls left uncommitted.",
                .details = "For work of 'run --no-commit', of background processes, and through a mount.",
                .examples = "  ntr commit -m 'before the upgrade'",
                .options = commit_options,
                .run = ntr_commit_main,
        },
        {
                .name = "discard",
                .group = NTR_GROUP_HISTORY,
                .args = "",
                .summary = "Drop uncommitted work. Background processes end.",
                .examples = "  ntr discard -s web",
                .run = ntr_discard_main,
        },
        {
                .name = "rollback",
                .group = NTR_GROUP_HISTORY,
                .args = "COMMIT\n--steps N",
                .summary = "Take a session back to an earlier commit.",
                .details = "Files, directory and variables become as they were; processes end. Uncommitted "
                           "work is committed "
                           "first, and nothing is lost: what is left behind stays in the history.",
                .examples = "  ntr rollback --steps 1\n  ntr rollback -s web 3f2a91c",
                .options = rollback_options,
                .max = 1,
                .run = ntr_rollback_main,
        },
        {
                .name = "ls",
                .group = NTR_GROUP_FILES,
                .args = "[PATH]",
                .summary = "List a directory of a session.",
                .details = "-s takes SESSION@COMMIT and SESSION~N, too.",
                .examples = "  ntr ls -l src\n  ntr ls -s web~2",
                .options = ls_options,
                .max = 1,
                .run = ntr_ls_main,
        },
        {
                .name = "cat",
                .group = NTR_GROUP_FILES,
                .args = "PATH...",
                .summary = "Print files of a session.",
                .details = "-s takes SESSION@COMMIT and SESSION~N, too.",
                .examples = "  ntr cat notes.txt\n  ntr cat -s web@3f2a91c src/main.c",
                .min = 1,
                .max = SIZE_MAX,
                .run = ntr_cat_main,
        },
        {
                .name = "put",
                .group = NTR_GROUP_FILES,
                .args = "FILE [PATH]",
                .summary = "Copy a file of this machine (- for stdin) into a session.",
                .examples = "  ntr put data.csv\n  date | ntr put - logs/now.txt",
                .min = 1,
                .max = 2,
                .run = ntr_put_main,
        },
        {
                .name = "get",
                .group = NTR_GROUP_FILES,
                .args = "PATH [FILE]",
                .summary = "Copy a file of a session to this machine (- for stdout).",
                .details = "-s takes SESSION@COMMIT and SESSION~N, too. A FILE that exists is replaced once "
                           "the whole content is "
                           "there.",
                .examples = "  ntr get dist/app.tar.gz\n  ntr get -s web~1 notes.txt old.txt",
                .min = 1,
                .max = 2,
                .run = ntr_get_main,
        },
        {
                .name = "export",
                .group = NTR_GROUP_FILES,
                .args = "--dir DIR\n--tar FILE",
                .summary = "Copy all files of a session or commit out.",
                .details = "-s takes SESSION@COMMIT and SESSION~N, too.",
                .examples = "  ntr export -s web --dir /tmp/web\n  ntr export -s web@3f2a91c --tar - | zstd "
                            "> web.tar.zst",
                .options = export_options,
                .run = ntr_export_main,
        },
        {
                .name = "cache",
                .group = NTR_GROUP_FILES,
                .args = "get KEY\nset KEY VALUE|-\nls\nrm KEY...",
                .summary = "Named values that are versioned with the files.",
                .details = "What Python code of the session calls `cache`. A text is printed as it is, any "
                           "other value as JSON; with --json `set` takes a value as JSON. Inside a call a "
                           "change becomes part of that call's commit. get and ls take SESSION@COMMIT and "
                           "SESSION~N with -s, too.",
                .examples = "  ntr cache set model gpt-x\n  ntr cache get model\n  ntr cache set --json "
                            "limits '{\"cpu\": 2}'\n  ntr cache get -s web~3 limits\n  ntr cache rm model",
                .min = 1,
                .max = SIZE_MAX,
                .run = ntr_cache_main,
        },
        {
                .name = "mount",
                .group = NTR_GROUP_FILES,
                .args = "SESSION[@COMMIT] DIR",
                .summary = "Show a session's files at a directory of this machine.",
                .details = "A session is mounted read-write as it is now, a commit read-only. As root this "
                           "is the session's own "
                           "view; for an ordinary user the daemon serves it through FUSE, which is slower.",
                .examples = "  ntr mount web ~/mnt\n  ntr mount web@3f2a91c ~/old",
                .min = 2,
                .max = 2,
                .run = ntr_mount_main,
        },
        {
                .name = "umount",
                .group = NTR_GROUP_FILES,
                .args = "DIR",
                .summary = "Take a mount away.",
                .examples = "  ntr umount ~/mnt",
                .min = 1,
                .max = 1,
                .run = ntr_umount_main,
        },
        {
                .name = "mcp",
                .group = NTR_GROUP_CALLS,
                .args = "",
                .summary = "Serve a session's tools to an agent over MCP (stdin and stdout).",
                .details = "A server of the Model Context Protocol, to be started by the agent's program. "
                           "Each call of "
                           "a tool that changes something is one commit. Files are resources below "
                           "workspace://, and "
                           "workspace://-/tree lists them. A call that the client cancels is killed. With "
                           "--versions "
                           "every tool also takes the name of another session, as fork makes them.",
                .examples =
                        "  claude mcp add work -- ntr mcp -s work\n  ntr mcp -s web --versions --timeout 10m",
                .options = mcp_options,
                .run = ntr_mcp_main,
        },
        {
                .name = "daemon",
                .group = NTR_GROUP_ADMIN,
                .args = "status\nstop",
                .summary = "Tell about the store's daemon, or end it.",
                .details = "It starts with the first command that needs it. 'stop' ends all sessions' "
                           "processes, commits their work "
                           "and returns when the daemon has ended; it does nothing when none runs.",
                .examples = "  ntr daemon status --json\n  ntr daemon stop",
                .min = 1,
                .max = 1,
                .run = ntr_daemon_main,
        },
        {
                .name = "doctor",
                .group = NTR_GROUP_ADMIN,
                .args = "",
                .summary = "Check what works on this machine and say how to get the rest.",
                .details = "The exit status is 1 when something is missing that ntr needs.",
                .examples = "  ntr doctor\n  ntr doctor --json",
                .run = ntr_doctor_main,
        },
        {
                .name = "fsck",
                .group = NTR_GROUP_ADMIN,
                .args = "",
                .summary = "Check the whole store.",
                .details = "The exit status is 1 when it has problems.",
                .examples = "  ntr fsck",
                .run = ntr_fsck_main,
        },
        {
                .name = "version",
                .group = NTR_GROUP_ADMIN,
                .args = "",
                .summary = "Print versions and licence.",
                .examples = "  ntr version",
                .run = ntr_version_main,
        },
        {
                .name = "help",
                .group = NTR_GROUP_ADMIN,
                .args = "[COMMAND]",
                .summary = "Tell about a command.",
                .examples = "  ntr help run",
                .max = 1,
                .run = ntr_help_main,
        },
        {0},
};

const struct ntr_verb *ntr_verb_find(const char *name)
{
	for (const struct ntr_verb *v = ntr_verbs; v->name; v++)
		if (!strcmp(v->name, name))
			return v;
	return NULL;
}
